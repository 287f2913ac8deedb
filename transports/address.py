"""Device addresses: `memx://0`, `sim+memx://2?chips=4&swap_ms=20`, `cpu://`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, final
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from repertory.models.errors import ConfigError

__all__ = ["Address"]

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address.

    Attributes:
        text: as the user wrote it.
        scheme: the family, with `sim+` before it where it is simulated.
        target: what stands between `://` and `?`.
        parameters: what follows `?`, undecoded values by name.
    """

    text: str
    scheme: str
    target: str
    parameters: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str) -> Address:
        """Take an address apart.

        Raises:
            ConfigError: it has no `scheme://`, gives a parameter twice, or cannot be printed.
        """
        if not text.isprintable():
            raise ConfigError(f"{text!r} is no device address: it holds characters that cannot be printed")
        scheme, separator, rest = text.partition("://")
        if not separator or not scheme:
            raise ConfigError(
                f"{text!r} is no device address: one begins with a scheme, such as sim+memx://0"
            )
        query = urlsplit(f"//{rest}").query
        try:
            pairs = tuple(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
        except ValueError as error:
            raise ConfigError(f"{text}: {error}") from error
        if any("\0" in value for _, value in pairs):
            raise ConfigError(f"{text}: a parameter holds a NUL")
        if len({name for name, _ in pairs}) != len(pairs):
            raise ConfigError(f"{text}: a parameter is given twice")
        return cls(text, scheme, rest.partition("?")[0], pairs)

    def given(self, **parameters: str) -> Address:
        """Return the same address with these parameters, in the place of what it had for them."""
        pairs = dict(self.parameters) | parameters
        return self.parse(f"{self.scheme}://{self.target}?{urlencode(pairs)}")

    def index(self) -> int:
        """Return the target as a device group's index; an empty one is 0.

        Raises:
            ConfigError: it is no whole number from 0 on.
        """
        if self.target and not (self.target.isascii() and self.target.isdigit()):
            raise ConfigError(f"{self.text}: {self.target!r} is no group index; use {self.scheme}://0")
        return int(self.target or 0)

    def options(self, kind: type[T]) -> T:
        """Read the parameters into the msgspec struct `kind`; what is not given keeps its default.

        Raises:
            ConfigError: names the unknown parameter or the bad value.
        """
        try:
            return msgspec.convert(dict(self.parameters), kind, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{self.text}: {error}") from error
