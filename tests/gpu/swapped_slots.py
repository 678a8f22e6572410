"""A fault on purpose: vLLM takes each adapter for the other one. The self-check must stop such a run.

VERL_USE_EXTERNAL_MODULES=tests.gpu.swapped_slots python -m verl.trainer.main_ppo +recipe=agon …

verl imports this module in each of its processes; in vLLM's workers it exchanges the two slots of every sync.
"""

from types import ModuleType

import wrapt

OTHER = {1: 2, 2: 1}


def _swap(extension: ModuleType) -> None:
    parse = extension.parse_sync_name

    def swapped(name: str) -> tuple[str, int, str]:
        adapter, slot, parameter = parse(name)
        return adapter, OTHER.get(slot, slot), parameter

    extension.parse_sync_name = swapped


wrapt.register_post_import_hook(_swap, "agon_verl.rollout.extension")
