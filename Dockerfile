# syntax=docker/dockerfile:1
FROM python:3.11-slim AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/muster && python -m venv /opt/backend

# Dependencies change rarely: a layer of their own, from hashes, never from what the index offers today.
COPY requirements.lock requirements-build.lock ./
RUN /opt/muster/bin/pip install --require-hashes --only-binary :all: -r requirements.lock \
 && /opt/backend/bin/pip install --require-hashes --only-binary :all: -r requirements-build.lock

COPY pyproject.toml LICENSE ./
COPY extender extender
COPY plugins plugins
COPY manifests/crds manifests/crds
RUN /opt/backend/bin/python -m hatchling build -t wheel -d /tmp/dist \
 && /opt/muster/bin/pip install --no-deps /tmp/dist/*.whl

FROM python:3.11-slim

# Kernels compiled on one CPU must be valid on every node; both variables are needed (an empty feature list
# is not the default). The root file system may be read-only: nothing is written but to /tmp.
ENV NUMBA_CPU_NAME=generic \
    NUMBA_CPU_FEATURES="" \
    NUMBA_CACHE_DIR=/tmp/numba \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PATH=/opt/muster/bin:$PATH

COPY --from=build /opt/muster /opt/muster
COPY config/muster.yaml /etc/muster/muster.yaml

WORKDIR /
USER 65532:65532
EXPOSE 8900
ENTRYPOINT ["muster"]
CMD ["serve", "--config", "/etc/muster/muster.yaml"]
