"""The client of the Hugging Face Hub: the library, the token's owner, and errors in one line.

The library reads the token (HF_TOKEN, or the login of `hf auth login`), the address of the Hub
(HF_ENDPOINT) and the place of its cache (HF_HUB_CACHE). No function takes a token, and no message
has one.
"""

import contextlib
import dataclasses
import importlib
from collections.abc import Iterator
from typing import Any

from data.members import import_extra

TOKENS = "https://huggingface.co/settings/tokens"
LOGIN = f"set HF_TOKEN, or run `hf auth login` once ({TOKENS} makes tokens)"
HINTS = {  # {HTTP status: what to do}
    401: f"the Hub does not know the token, or wants one: {LOGIN}",
    403: f"the token does not permit this: {TOKENS} shows what it permits",
    404: "there is no such repository or revision, or the token may not see it",
    409: "another commit was made meanwhile; run the command again",
    412: "another commit was made meanwhile; run the command again",
    413: "the Hub does not take files of this size",
    429: "the Hub limits how often it is asked; wait, and run the command again",
}
LATER = "the Hub has an error of its own; run the command again later"


class HubError(OSError):
    """The Hub cannot be reached or refuses a request; the message names the remedy."""


@dataclasses.dataclass(frozen=True)
class Owner:
    """The owner of a token.

    Attributes:
      is_fine_grained: whether the token has permissions of its own, which the Hub does not name.
    """

    name: str
    organisations: tuple[str, ...]
    is_fine_grained: bool


def load_library() -> Any:
    """Return the module `huggingface_hub`. Raises ValueError if it is not installed."""
    library = import_extra("huggingface_hub", "hub", "the Hugging Face Hub")
    for name in ("constants", "errors", "utils"):  # The package does not import them itself.
        importlib.import_module(f"huggingface_hub.{name}")
    return library


def is_offline() -> bool:
    """Return whether HF_HUB_OFFLINE forbids requests."""
    return bool(load_library().constants.HF_HUB_OFFLINE)


def check_online(place: str) -> None:
    """Raise HubError if HF_HUB_OFFLINE forbids requests."""
    if is_offline():
        raise HubError(f"{place}: HF_HUB_OFFLINE forbids to reach the Hub; unset it")


@contextlib.contextmanager
def naming_hub_errors(place: str) -> Iterator[None]:
    """Raise HubError, which begins with `place`, for the errors of the library in the block."""
    library = load_library()
    errors = library.errors
    try:
        yield
    except HubError:
        raise
    except errors.HfHubHTTPError as error:
        raise HubError(f"{place}: {describe_refusal(error)}") from error
    except (errors.HTTPError, ConnectionError) as error:
        raise HubError(
            f"{place}: {library.constants.ENDPOINT} cannot be reached ({type(error).__name__}: "
            f"{error}); check the network, its proxy (HTTPS_PROXY) and HF_ENDPOINT"
        ) from error
    except RuntimeError as error:  # of a file that is sent; its cause is one of those above
        inner = error.__cause__
        answer = describe_refusal(inner) if isinstance(inner, errors.HfHubHTTPError) else inner
        raise HubError(f"{place}: {_join_lines(error)} {answer or ''}".rstrip()) from error
    except OSError as error:
        if error.errno is not None:  # of a file of this machine, which it names
            raise
        raise HubError(f"{place}: {_join_lines(error)}") from error


def _join_lines(error: Exception) -> str:
    return " ".join(str(error).split())


def describe_refusal(error: Any) -> str:
    """Return the status and message of a refused request, and what to do."""
    status = error.response.status_code
    answer = error.response.headers.get("X-Error-Message") or error.server_message
    hint = HINTS.get(status, LATER if status >= 500 else "")
    if error.response.headers.get("X-Error-Code") == "GatedRepo":
        hint = "the repository is gated: accept its terms on its page, with the token's account"
    shown = " ".join(f"{status} ({answer})".split()) if answer else f"{status}"
    return f"the Hub answers {shown}" + (f"; {hint}" if hint else "")


def find_owner(api: Any) -> Owner:
    """Return the owner of the token.

    Raises:
      HubError: there is no token, the Hub does not know it, or it may not write.
    """
    if not load_library().get_token():
        raise HubError(f"no token of the Hugging Face Hub: {LOGIN}; it must permit writing")
    with naming_hub_errors("the token"):
        account = api.whoami()
    role = ((account.get("auth") or {}).get("accessToken") or {}).get("role")
    if role == "read":
        raise HubError(
            f"the token of {account['name']} may only read; make one that may write at {TOKENS}"
        )
    organisations = tuple(entry["name"] for entry in account.get("orgs") or ())
    return Owner(account["name"], organisations, role == "fineGrained")


@contextlib.contextmanager
def hiding_progress_bars() -> Iterator[None]:
    """Hide the library's bars: they move the cursor, which the escaped output does not obey."""
    library = load_library()
    utils = library.utils
    shown = not utils.are_progress_bars_disabled()
    if library.constants.HF_HUB_DISABLE_PROGRESS_BARS is not None or not shown:
        yield
        return
    utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.enable_progress_bars()
