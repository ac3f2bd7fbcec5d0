"""The local web application: a map of embeddings, search, duplicates, and a run as it trains.

FastAPI and uvicorn are the extra `serve`; importing this package needs neither.
"""
