"""The env `ant-colony`: ants that find food on a grid, carry it home and signal by scents."""
