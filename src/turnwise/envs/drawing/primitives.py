"""The drawing primitives: seven functions that change a grid and return it.

Provides `PRIMITIVES`. A grid is a list of rows, each a list of colours from 0 to 9. A point is
(row, column), counted from 0. Later calls paint over earlier ones. The module imports nothing, so
that its source also runs in the sandbox before a program.

Semantics are those of github.com/ironbar/arc25, except that wrong arguments are refused in place of
stored: colours beyond 0 to 9, coordinates beyond `FARTHEST`, sides beyond `LARGEST_SIDE`.
"""

LARGEST_SIDE = 30
"""The most rows or columns of a grid."""
FARTHEST = 100
"""The largest size of a coordinate: a line takes as many steps as it is long."""


def create_img(shape, color=0):
    """Return a grid of one colour."""
    rows, columns = _pair(shape, "shape")
    if not (1 <= rows <= LARGEST_SIDE and 1 <= columns <= LARGEST_SIDE):
        raise ValueError(f"shape = {(rows, columns)}: expected sides from 1 to {LARGEST_SIDE}")
    _check_color(color)
    return [[color] * columns for _ in range(rows)]


def draw_line(img, point1, point2, color):
    """Draw a straight line by Bresenham's algorithm, both ends included; cells outside are dropped.

    Its cells are those of `skimage.draw.line`.
    """
    (row, column), (last_row, last_column) = _pair(point1, "point1"), _pair(point2, "point2")
    _check_color(color)
    down, right = abs(last_row - row), abs(last_column - column)
    to_row, to_column = (1 if last_row > row else -1), (1 if last_column > column else -1)
    steep = down > right
    long, short = (down, right) if steep else (right, down)
    error = 2 * short - long
    for _ in range(long):
        _set(img, row, column, color)
        if error >= 0:
            error -= 2 * long
            if steep:
                column += to_column
            else:
                row += to_row
        if steep:
            row += to_row
        else:
            column += to_column
        error += 2 * short
    _set(img, last_row, last_column, color)
    return img


def draw_rectangle(img, point1, point2, color):
    """Fill the rectangle between two corners, both included; cells outside are dropped."""
    (row1, column1), (row2, column2) = _pair(point1, "point1"), _pair(point2, "point2")
    _check_color(color)
    first = max(0, min(column1, column2))
    stop = max(first, min(len(img[0]), max(column1, column2) + 1))
    for row in range(max(0, min(row1, row2)), min(len(img) - 1, max(row1, row2)) + 1):
        img[row][first:stop] = [color] * (stop - first)
    return img


def draw_horizontal_line(img, y, color):
    """Fill row `y`; a negative one counts from the end, and one outside is an error."""
    _check_number(y, "y")
    _check_color(color)
    if not -len(img) <= y < len(img):
        raise IndexError(f"y = {y}: the grid has {len(img)} rows")
    img[y][:] = [color] * len(img[0])
    return img


def draw_vertical_line(img, x, color):
    """Fill column `x`; a negative one counts from the end, and one outside is an error."""
    _check_number(x, "x")
    _check_color(color)
    if not -len(img[0]) <= x < len(img[0]):
        raise IndexError(f"x = {x}: the grid has {len(img[0])} columns")
    for row in img:
        row[x] = color
    return img


def draw_pixel(img, point, color):
    """Set one cell; one outside is ignored."""
    row, column = _pair(point, "point")
    _check_color(color)
    _set(img, row, column, color)
    return img


def flood_fill(img, point, color, connectivity):
    """Fill the cells of the point's colour that are connected with it, over 4 or 8 neighbours.

    It paints run by run: a cell that was found paints all of its row up to other colours.
    """
    row, column = _pair(point, "point")
    _check_color(color)
    if connectivity not in (4, 8):
        raise ValueError(f"connectivity = {connectivity}: expected 4 or 8")
    if not (-len(img) <= row < len(img) and -len(img[0]) <= column < len(img[0])):
        raise IndexError(f"point = {(row, column)}: the grid has {len(img)} x {len(img[0])} cells")
    before, aside = img[row][column], 1 if connectivity == 8 else 0
    if before == color:
        return img
    found = [(row % len(img), column % len(img[0]))]
    while found:
        row, column = found.pop()
        cells = img[row]
        if cells[column] != before:
            continue
        first = last = column
        while first > 0 and cells[first - 1] == before:
            first -= 1
        while last + 1 < len(cells) and cells[last + 1] == before:
            last += 1
        cells[first : last + 1] = [color] * (last + 1 - first)
        for other in (row - 1, row + 1):
            if 0 <= other < len(img):
                for place in range(max(0, first - aside), min(len(cells), last + 1 + aside)):
                    if img[other][place] == before:
                        found.append((other, place))
    return img


def _set(img, row, column, color):
    if 0 <= row < len(img) and 0 <= column < len(img[0]):
        img[row][column] = color


def _pair(value, name):
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"{name}: expected two numbers")
    for number in value:
        _check_number(number, name)
    return value[0], value[1]


def _check_number(value, name):
    if type(value) is not int or not -FARTHEST <= value <= FARTHEST:
        raise ValueError(f"{name}: expected whole numbers from -{FARTHEST} to {FARTHEST}")


def _check_color(color):
    if type(color) is not int or not 0 <= color <= 9:
        raise ValueError("color: expected a whole number from 0 to 9")


PRIMITIVES = {
    function.__name__: function
    for function in (
        create_img,
        draw_line,
        draw_rectangle,
        draw_horizontal_line,
        draw_vertical_line,
        draw_pixel,
        flood_fill,
    )
}
"""Name -> function."""
