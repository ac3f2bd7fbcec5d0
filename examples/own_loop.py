"""A loss in your own loop: plain PyTorch, and one import.

python examples/own_loop.py                      # on built-in letters
python examples/own_loop.py --data photos/       # on your own pictures
"""

import argparse
from pathlib import Path

import torch

from nearfar.data import open_data
from nearfar.evaluate import knn_predict
from nearfar.losses import nt_xent
from nearfar.nn import LogTemperature, backbone
from nearfar.views import Preparation, make_views, shapes, simclr


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="glyphs:2000", help="a folder, a table, or built-in data")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    folder = Path(options.data)
    labelled = folder.is_dir() and any(path.is_dir() for path in folder.iterdir())  # sub-folders are classes
    data = open_data(options.data, image_size=32, labels=labelled or None)
    views = shapes(32) if options.data.startswith("glyphs") else simclr(32)

    # The part that matters: your model, your optimiser, your loop.
    encoder = backbone("micro", size=32)  # or any nn.Module that gives (B, F)
    head = torch.nn.Linear(encoder.num_features, 128)
    temperature = LogTemperature(0.2)  # learned, and always above 0
    trained = torch.nn.ModuleList([encoder, head, temperature])
    optimiser = torch.optim.AdamW(trained.parameters(), lr=2e-3)
    for epoch in range(options.epochs):
        for step, index in enumerate(torch.randperm(len(data)).split(options.batch_size)):
            x1, x2 = make_views(data.fetch(index), views, seed=epoch, step=step)
            loss = nt_xent(head(encoder(x1)), head(encoder(x2)), temperature=temperature())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        print(f"epoch {epoch + 1}: loss {float(loss.detach()):.3f}, temperature {float(temperature().detach()):.3f}")

    # Does a picture lie beside others of its kind? Half of the data ask the other half.
    if data.labels is None:
        print("the data have no labels, so there is nothing to ask")
        return 0.0
    with torch.no_grad():
        everything = Preparation.of(views[0])(data.fetch(torch.arange(len(data))))
        h, half = encoder.eval()(everything), len(data) // 2
    guess = knn_predict(h[:half], data.labels[:half], h[half:], k=10, classes=int(data.labels.max()) + 1).argmax(1)
    accuracy = float((guess == data.labels[half:]).float().mean())
    print(f"10 neighbours name {accuracy:.0%} of {len(guess):,} samples right")
    return accuracy


if __name__ == "__main__":
    main()
