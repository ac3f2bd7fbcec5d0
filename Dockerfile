# The core with the extras of the command line, on the CPU or with CUDA:
#   docker build -t nearfar .
#   docker build -t nearfar:cuda --build-arg TORCH=cu130 .
#   docker run --rm -v "$PWD:/data" nearfar train --data photos/
#   docker run --rm --gpus all -v "$PWD:/data" nearfar:cuda train --data photos/
FROM python:3.11-slim AS build
ARG TORCH=cpu
WORKDIR /source
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src src
COPY recipes recipes
RUN python -m venv /opt/nearfar \
    && /opt/nearfar/bin/pip install --no-cache-dir --constraint constraints.txt \
        --extra-index-url "https://download.pytorch.org/whl/${TORCH}" ".[audio,text,search,serve,export,weights]"

FROM python:3.11-slim
RUN useradd --create-home --uid 1000 nearfar
COPY --from=build /opt/nearfar /opt/nearfar
ENV PATH=/opt/nearfar/bin:$PATH
USER 1000
WORKDIR /data
ENTRYPOINT ["nearfar"]
CMD ["--help"]
