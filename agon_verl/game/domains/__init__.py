"""The kinds of problems: `agon.domain` is a name of `DOMAINS`. A new one is a file here and its entry below."""

from collections.abc import Mapping

from agon_verl.game.domains.code import CODE
from agon_verl.game.domains.domain import Domain
from agon_verl.game.domains.math import MATH

DOMAINS: Mapping[str, Domain] = {domain.name: domain for domain in (MATH, CODE)}
