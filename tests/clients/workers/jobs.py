"""What the workers do, in a module of its own: some of them find it by its name."""

import os

from celery import Celery

URL = os.environ.get("WORKERS_URL", "redis://127.0.0.1:6379")

app = Celery("jobs", broker=f"{URL}/1", backend=f"{URL}/2")


def add(one, other):
    return one + other


@app.task
def add_by_celery(one, other):
    return one + other
