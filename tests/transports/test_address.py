"""Addresses: taken apart, put together again, refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repertory.models.errors import ConfigError
from repertory.transports.address import Address

TEXT = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=20)


@given(TEXT, TEXT)
def test_a_parameter_is_given_and_read_again(value: str, other: str) -> None:
    address = Address.parse("memx://3?window=4&library=x").given(library=value, lock_dir=other)
    assert address.scheme == "memx"
    assert address.index() == 3
    assert dict(address.parameters) == {"window": "4", "library": value, "lock_dir": other}
    assert Address.parse(address.text) == address


@pytest.mark.parametrize(
    "text", ["memx://0?library=\ud800", "memx://0?library=a%00b", "memx://\n", "memx", "://0"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError):
        Address.parse(text)
