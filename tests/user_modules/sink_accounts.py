"""Functions of a user's module that report its sink's last batch."""


def last_batch(app_id: str) -> int:
    return 2


def broken(app_id: str) -> int:
    raise KeyError(app_id)


def wordy(app_id: str) -> str:
    return "two"
