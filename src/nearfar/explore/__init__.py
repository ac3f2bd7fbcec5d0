"""The local web application: a map of embeddings, search, duplicates, and runs in training.

Needs FastAPI and uvicorn, the extra `serve`, from the first call on; importing the package does not.
"""

__all__: list[str] = []
