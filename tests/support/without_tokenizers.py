"""What transformers needs of tokenizers and safetensors, for an interpreter that they have no wheels for.

Each Python of the environment of free_threaded.sh imports it. A tokenizer knows words, not texts: what the collators
ask of one, and the tests of them.
"""

import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import types
from typing import Any

VERSIONS = {"tokenizers": "0.22.1", "safetensors": "0.6.2"}


class AddedToken:
    def __init__(self, content: str = "", **options: bool) -> None:
        self.content, self.options = content, options
        for name in ("single_word", "lstrip", "rstrip", "special"):
            setattr(self, name, options.get(name, False))
        self.normalized = options.get("normalized", not self.special)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "options"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**{**self.__getstate__(), **state})

    def __str__(self) -> str:
        return self.content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AddedToken) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)


class WordLevel:
    def __init__(self, vocab: dict[str, int], unk_token: str | None = None) -> None:
        self.vocab, self.unk_token = vocab, unk_token


class Tokenizer:
    truncation = padding = pre_tokenizer = normalizer = decoder = post_processor = None
    encode_special_tokens = False

    def __init__(self, model: WordLevel) -> None:
        self.model, self.added = model, {}

    def add_tokens(self, tokens: list[Any]) -> int:
        before = len(self.added)
        for token in tokens:
            entry = token if isinstance(token, AddedToken) else AddedToken(str(token))
            number = self.token_to_id(str(entry))
            self.added[self.get_vocab_size() if number is None else number] = entry
        return len(self.added) - before

    add_special_tokens = add_tokens

    def token_to_id(self, token: str) -> int | None:
        return self.get_vocab().get(token)

    def id_to_token(self, number: int) -> str | None:
        return next((token for token, value in self.get_vocab().items() if value == number), None)

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        added = {str(token): number for number, token in self.added.items()} if with_added_tokens else {}
        return {**self.model.vocab, **added}

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        added = map(str, self.added.values()) if with_added_tokens else ()
        return len(self.model.vocab) + sum(token not in self.model.vocab for token in added)  # asked for each batch

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        return dict(sorted(self.added.items()))

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        return 0

    def no_truncation(self) -> None: ...

    def no_padding(self) -> None: ...


class _Standin(types.ModuleType):
    """A module that has every class one asks for: transformers only names the others."""

    def __init__(self, name: str, **known: Any) -> None:
        super().__init__(name)
        vars(self).update(known, __spec__=importlib.machinery.ModuleSpec(name, None), __path__=[])
        for member in known.values():
            member.__module__ = name
        sys.modules[name] = self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        vars(self)[name] = type(name, (), {"__module__": self.__name__})
        return vars(self)[name]


def _stand_in(*names: str) -> None:
    version = importlib.metadata.version
    importlib.metadata.version = lambda name: VERSIONS[name] if name in names else version(name)
    if "safetensors" in names:
        _Standin("safetensors")
        _Standin("safetensors.torch")
    if "tokenizers" not in names:
        return
    package = _Standin("tokenizers", AddedToken=AddedToken, Tokenizer=Tokenizer)
    for name in ("normalizers", "pre_tokenizers", "processors", "decoders", "trainers"):
        setattr(package, name, _Standin(f"tokenizers.{name}"))
    package.models = _Standin("tokenizers.models", WordLevel=WordLevel)


_stand_in(*(name for name in VERSIONS if importlib.util.find_spec(name) is None))
