"""Greedy texts equal those of transformers and PEFT token for token, whatever runs beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.artifacts import RandomAdapter, random_adapter
from tests.unit.workers.generation.decoders import (
    causal,
    finish,
    greedy,
    load_decoder,
    new_generator,
    new_text,
    plain,
    with_adapter,
    write_decoder,
)
from workers.models.loaded import LoadedModel
from workers.packing.artifact import read_artifact

FAMILIES = ["llama", "qwen2", "qwen3", "mistral", "gemma", "phi", "gpt2"]
PROMPTS = ["a", "The sea is deep", "Fish, " * 12, "zwölf Fische"]


def adapters_for(model: LoadedModel, folder: Path, count: int = 2) -> dict[str | None, RandomAdapter]:
    """Adapters of different ranks on different modules, resident."""
    paths = [path for path in model.adapters.shapes if "lm_head" not in path]
    found: dict[str | None, RandomAdapter] = {}
    for seed in range(1, count + 1):
        ranks = dict.fromkeys(paths if seed % 2 else paths[:3], 2 * seed)
        one = random_adapter(model.adapters.shapes, ranks, seed=seed, strength=3.0)
        model.load_adapter(one.digest, read_artifact(one.write_canonical(folder)))
        found[one.digest] = one
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_texts_equal_transformers_and_peft_alone_and_in_a_busy_batch(family: str, tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "model", family)
    model = load_decoder(folder)
    adapters = adapters_for(model, tmp_path)
    cases = [(prompt, owner) for prompt in PROMPTS for owner in (None, *adapters)]
    expected = {}
    for owner in (None, *adapters):
        module = plain(folder) if owner is None else with_adapter(folder, adapters[owner], tmp_path / owner)
        for prompt in PROMPTS:
            expected[prompt, owner] = greedy(module, new_text(model, prompt).prompt, 12)
    assert len(set(map(tuple, expected.values()))) > len(PROMPTS), "the adapters change nothing"
    for case in cases[::5]:
        (text,) = finish(new_generator(model), [new_text(model, case[0], adapter=case[1])])
        assert text.made == expected[case]
    # chunks of 7 tokens: prompts are cut, and begin while other texts go on
    busy = finish(
        new_generator(model, chunk_tokens=7),
        [new_text(model, prompt, key=str(n), adapter=owner) for n, (prompt, owner) in enumerate(cases)],
    )
    assert [text.made for text in busy] == [expected[case] for case in cases]


def test_an_adapter_on_the_language_head_counts_for_its_rows_alone(tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "model")
    model = load_decoder(folder)
    one = random_adapter(model.adapters.shapes, {"lm_head": 4}, seed=1, strength=6.0)
    model.load_adapter(one.digest, read_artifact(one.write_canonical(tmp_path)))
    module = plain(folder)
    base = [greedy(module, new_text(model, prompt).prompt, 12) for prompt in PROMPTS]
    peft = with_adapter(folder, one, tmp_path / "peft")
    changed = [greedy(peft, new_text(model, prompt).prompt, 12) for prompt in PROMPTS]
    assert base != changed
    texts = [new_text(model, prompt, adapter=owner) for prompt in PROMPTS for owner in (one.digest, None)]
    made = [text.made for text in finish(new_generator(model, chunk_tokens=9), texts)]
    assert made[::2] == changed
    assert made[1::2] == base


def test_texts_that_yield_their_memory_go_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "model")
    token_bytes = causal(load_decoder(folder)).cache.token_bytes
    # room for two rows of 128 tokens, or one of 256: texts of 150 tokens cannot all stay
    model = load_decoder(folder, generation_bytes=300 * token_bytes)
    prompts = ["fish " * 22, "storm " * 18, "deep water " * 10]
    module = plain(folder)
    generator = new_generator(model)
    expected = [greedy(module, new_text(model, prompt).prompt, 60) for prompt in prompts]
    assert any(len(tokens) == 60 for tokens in expected), "no text grows out of its first row"
    pauses = 0
    pause = generator._pause

    def counted(text: object) -> None:
        nonlocal pauses
        pauses += 1
        pause(text)  # type: ignore[arg-type]

    generator._pause = counted  # type: ignore[method-assign]
    texts = finish(generator, [new_text(model, prompt, max_tokens=60) for prompt in prompts])
    assert pauses > 0
    assert [text.made for text in texts] == expected
    assert model.kind.cache.size_bytes <= 300 * token_bytes  # type: ignore[attr-defined]


def test_texts_made_side_by_side_share_a_beginning_of_the_same_version(tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "model")
    model = load_decoder(folder)
    (owner, one), *_ = adapters_for(model, tmp_path, 1).items()
    system = "You are a helpful fish of few words. "
    prompts = [system + end for end in ("Hello", "What is deep?", "Who turns as one?")]
    texts = [new_text(model, prompt, adapter=version) for version in (None, owner) for prompt in prompts]
    finish(new_generator(model, chunk_tokens=40), texts)
    # texts that begin in a step with the first of their version compute the beginning themselves
    assert [text.cached >= len(system) for text in texts] == [False, True, True, False, False, True]
    assert texts[3].cached == 0
    for version, module in ((None, plain(folder)), (owner, with_adapter(folder, one, tmp_path / "peft"))):
        for text in texts:
            if text.adapter == version:
                assert text.made == greedy(module, text.prompt, 12)


def test_the_same_beginning_is_computed_once_for_a_version_and_never_for_another(tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "model")
    model = load_decoder(folder)
    (owner, one), *_ = adapters_for(model, tmp_path, 1).items()
    module = plain(folder)
    peft = with_adapter(folder, one, tmp_path / "peft")
    generator = new_generator(model)
    (first,) = finish(generator, [new_text(model, "A shoal of fish turns as one", max_tokens=8)], keep=True)
    longer = first.prompt + first.made
    kind = causal(model)
    again = kind.begin("again", None, [*longer, 5, 6, 7], first.sampling)
    other = kind.begin("other", owner, [*longer, 5, 6, 7], first.sampling)
    fork = kind.begin("fork", None, [*longer[:20], 9, 9], first.sampling)
    same = kind.begin("same", None, first.prompt, first.sampling)
    finish(generator, [again, other, fork, same], keep=True)
    assert (again.cached, other.cached, fork.cached) == (len(longer) - 1, 0, 20)
    assert same.cached == len(first.prompt) - 1, "the last token of a prompt is computed: its logits are needed"
    assert again.take_end().cached_tokens == len(longer) - 1
    for text in (again, fork, same):
        assert text.made == greedy(module, text.prompt, 8)
    assert other.made == greedy(peft, other.prompt, 8)
