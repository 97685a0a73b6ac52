FROM python:3.12-slim-bookworm
COPY --from=ghcr.io/astral-sh/uv:0.5.11 /uv /usr/local/bin/uv
WORKDIR /app
COPY pyproject.toml uv.lock ./
RUN --mount=type=cache,target=/root/.cache/uv uv sync --frozen --no-install-project
COPY src ./src
RUN uv pip install --system -e .
ENV VIRTUAL_ENV=/app/.venv PATH="/app/.venv/bin:$PATH"
CMD ["python", "-m", "app"]
