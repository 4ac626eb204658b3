"""What a user's module may say of its sink."""


def last_batch(app_id: str) -> int:
    return 2


def broken(app_id: str) -> int:
    raise KeyError(app_id)


def wordy(app_id: str) -> str:
    return "two"
