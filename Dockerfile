# FlowQL with the project in /project, as `docs/guide/containers.md` describes: docker build -t flowql .
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY compiler compiler
COPY runtime runtime
COPY flowql flowql
# Versions are those of the lock. Its hashes stay behind: pip then refuses the wheel of this folder, which has none.
RUN sed -n 's/^\([^ ]*==[^ ]*\) .*/\1/p' requirements.lock > versions.txt \
 && pip wheel --no-cache-dir --no-deps --wheel-dir dist . \
 && python -m venv /flowql \
 && /flowql/bin/pip install --no-cache-dir --constraint versions.txt "$(echo dist/*.whl)[registry]"

FROM python:3.11-slim
RUN useradd --uid 1000 --create-home flowql && install --directory --owner=flowql /project /project/.flowql
COPY --from=build /flowql /flowql
ENV PATH=/flowql/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /project
USER flowql
VOLUME /project/.flowql
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=15s --start-period=60s CMD ["flowql", "status"]
ENTRYPOINT ["flowql"]
CMD ["run"]
