"""Writes ``train.jsonl`` and ``heldout.jsonl``: log lines in a plant's shorthand, each with the sentence it stands for.

Technicians write `gbx 2 brg ovht, rpl nxt stop`; the manual says "A bearing in the second gearbox runs too hot. Fit a
new one at the next shutdown." General embedding models have never seen this shorthand. Every pair is one combination
of part, place, symptom and action; no combination, and no pair of part and symptom, of the held-out file is in the
training file, so a model can only do well on it by having learned what the abbreviations mean.

    python -m examples.maintenance_shorthand.build
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

HERE = Path(__file__).resolve().parent

# shorthand → ways the manual words it
PARTS = {
    "brg": ["bearing", "roller bearing"],
    "vlv": ["valve", "shut-off valve"],
    "gskt": ["gasket", "seal between the flanges"],
    "xmtr": ["transmitter", "measuring transmitter"],
    "imp": ["impeller", "pump wheel"],
    "hx": ["heat exchanger", "cooler bundle"],
    "vfd": ["frequency converter", "variable speed drive"],
    "cplg": ["coupling", "shaft coupling"],
    "fltr": ["filter", "strainer element"],
    "slnd": ["solenoid", "magnet coil"],
    "hyd rsvr": ["hydraulic tank", "oil tank of the hydraulic unit"],
    "cnvyr blt": ["conveyor belt", "transport belt"],
}
PLACES = {
    "gbx 2": ["the second gearbox", "gearbox number two"],
    "p-101": ["the main feed pump", "feed pump one"],
    "c/w lp": ["the cooling water loop", "the loop that carries cooling water"],
    "blr hs": ["the boiler house", "the building with the boilers"],
    "cmp a": ["the first compressor", "compressor A"],
    "pk ln": ["the packing line", "the line where goods are packed"],
}
SYMPTOMS = {
    "ovht": ["runs too hot", "exceeds its permitted temperature"],
    "vib hi": ["shakes strongly", "vibrates more than allowed"],
    "lkg": ["drips", "loses fluid"],
    "stk": ["does not move any more", "is jammed"],
    "clgd": ["is blocked by dirt", "lets almost nothing through"],
    "intmt flt": ["fails now and then", "drops out from time to time"],
    "wrn": ["is worn down", "shows heavy abrasion"],
    "lse": ["has come loose", "is no longer tight"],
    "nsy": ["makes a loud sound", "can be heard across the hall"],
    "crkd": ["has a crack", "is fractured"],
}
ACTIONS = {
    "rpl nxt stop": ["Fit a new one at the next shutdown.", "Exchange it when the plant is halted next."],
    "lub & obs": ["Grease it and keep watching.", "Apply grease and look again later."],
    "tq chk": ["Verify the bolts with the torque wrench.", "Tighten the screws to the prescribed moment."],
    "iso & tag": ["Cut it off and mark it as out of use.", "Shut it off and hang a warning label on it."],
    "cln & rtn": ["Wash it and put it back to work.", "Remove the dirt and bring it back into service."],
    "esc to eng": ["Hand it over to the engineers.", "Engineering has to decide."],
}


def pair(part: str, place: str, symptom: str, action: str, rng: random.Random) -> dict[str, str]:
    """One shorthand line and the sentence it stands for."""
    query = f"{place} {part} {symptom}, {action}"
    noun, where = rng.choice(PARTS[part]), rng.choice(PLACES[place])
    state, deed = rng.choice(SYMPTOMS[symptom]), rng.choice(ACTIONS[action])
    sentence = rng.choice([f"The {noun} in {where} {state}. {deed}", f"In {where} the {noun} {state}. {deed}"])
    return {"query": query, "document": sentence}


def build(seed: int = 7, train_size: int = 1500, heldout_size: int = 200) -> tuple[list[dict[str, str]], ...]:
    """(training pairs, held-out pairs), disjoint in every (part, symptom)."""
    rng = random.Random(seed)
    meanings = sorted(itertools.product(PARTS, SYMPTOMS))
    rng.shuffle(meanings)
    held = set(meanings[: len(meanings) // 5])
    everything = sorted(itertools.product(PARTS, PLACES, SYMPTOMS, ACTIONS))
    rng.shuffle(everything)
    heldout = [row for row in everything if (row[0], row[2]) in held][:heldout_size]
    train = [row for row in everything if (row[0], row[2]) not in held][:train_size]
    return [pair(*row, rng) for row in train], [pair(*row, rng) for row in heldout]


def main() -> None:
    for name, rows in zip(("train", "heldout"), build(), strict=True):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (HERE / f"{name}.jsonl").write_text(text)


if __name__ == "__main__":
    main()
