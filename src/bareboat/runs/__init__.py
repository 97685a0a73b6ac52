"""The life of a run after it was planned: submitted, followed, cancelled, recorded."""
