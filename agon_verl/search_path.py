"""Puts the shipped recipes on Hydra's search path, so that `+recipe=agon` resolves wherever the plugin is installed."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class RecipeSearchPath(SearchPathPlugin):
    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append(provider="agon-verl", path="pkg://recipes")
