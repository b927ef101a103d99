"""Recipes: the schema, loading from TOML, overrides, and recipes made from Python values."""

from turnwise.recipe.schema import Recipe, load_recipe, make_recipe, recipe_names, recipe_summary

__all__ = ["Recipe", "load_recipe", "make_recipe", "recipe_names", "recipe_summary"]
