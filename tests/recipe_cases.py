"""What a build takes on trust, one entry a defect; and what only looks like one and must pass.

Each entry is a rule's last part, a Dockerfile after its FROM, and the line that is named (of the
script `prepare.sh` where that is given).
"""

from tests.samples import DIGEST

PINNED = f"FROM debian:12.5@{DIGEST}\n"
COMMIT = "1" * 40
SUM = "2" * 64

# (rule, whole Dockerfile, prepare.sh, file, line)
DEFECTS: tuple[tuple[str, str, str, str, str], ...] = (
    ("floating-tag", "FROM debian\n", "", "Dockerfile", "line 1"),
    ("floating-tag", "FROM debian:latest\n", "", "Dockerfile", "line 1"),
    ("floating-tag", "FROM host:5000/x/y\n", "", "Dockerfile", "line 1"),
    ("floating-tag", "ARG V=lts\n\nFROM node:${V}\n", "", "Dockerfile", "line 3"),
    ("floating-tag", PINNED + "COPY --from=tool:edge /a /a\n", "", "Dockerfile", ""),
    ("unpinned-image", "FROM debian:12.5\n", "", "Dockerfile", "line 1"),
    ("unpinned-image", "ARG V=12.5\nFROM debian:$V\n", "", "Dockerfile", "line 2"),
    (
        "moving-clone",
        PINNED + "RUN apt-get update \\\n # why\n\n && git clone https://h/x.git /x\n",
        "",
        "Dockerfile",
        "line 5",
    ),
    ("moving-clone", PINNED + "RUN git clone git@h:o/x.git /x\n", "", "Dockerfile", "line 2"),
    ("moving-clone", PINNED + "RUN git clone -b main https://h/x\n", "", "Dockerfile", "line 2"),
    (
        "moving-clone",
        PINNED + "RUN git clone https://h/x && git -C x checkout main\n",
        "",
        "Dockerfile",
        "line 2",
    ),
    (
        "moving-clone",
        PINNED + f"RUN git clone https://h/x && git -C x checkout {COMMIT}\n"
        "RUN git clone https://h/y\n",
        "",
        "Dockerfile",
        "line 3",
    ),
    ("moving-clone", PINNED + "ADD https://h/x.git#main /x\n", "", "Dockerfile", "line 2"),
    ("moving-clone", PINNED + "RUN pip install git+https://h/x\n", "", "Dockerfile", "line 2"),
    (
        "moving-clone",
        PINNED + "COPY prepare.sh /\nRUN bash /prepare.sh\n",
        "set -e\ncd /\ngit clone \\\n  https://h/x\n",
        "prepare.sh",
        "line 3",
    ),
    ("download", PINNED + "RUN curl -fsSL https://h/i.sh | bash -\n", "", "Dockerfile", "line 2"),
    ("download", PINNED + "RUN wget https://h/a.tgz\n", "", "Dockerfile", "line 2"),
    ("download", PINNED + "ADD https://h/a.tgz /a.tgz\n", "", "Dockerfile", "line 2"),
    ("download", PINNED + "RUN V=$(curl -s https://h/latest)\n", "", "Dockerfile", "line 2"),
    (
        "download",
        PINNED + f"RUN curl -o a.tgz https://h/a && curl -o b.tgz https://h/b \\\n"
        f" && echo '{SUM}  a.tgz' | sha256sum -c -\n",
        "",
        "Dockerfile",
        "line 2",
    ),
    (
        "download",
        PINNED + f"RUN echo '{SUM}  a.tgz' | sha256sum -c - || true; wget -O a.tgz https://h/a\n",
        "",
        "Dockerfile",
        "line 2",
    ),
    (
        "download",
        PINNED + "RUN <<END\nset -e\ncurl -O https://h/a.tgz\ntar xf a.tgz\nEND\n",
        "",
        "Dockerfile",
        "line 4",
    ),
    ("swallowed", PINNED + "RUN npm ci || true\n", "", "Dockerfile", "line 2"),
    ("swallowed", PINNED + "RUN cd /a && patch -p1 </p || :\n", "", "Dockerfile", "line 2"),
    ("swallowed", PINNED + "RUN make; echo made\n", "", "Dockerfile", "line 2"),
    ("swallowed", PINNED + "RUN make \\\n  && pip install x; true\n", "", "Dockerfile", "line 2"),
    ("swallowed", PINNED + "RUN ./gradlew build | tail -n 5\n", "", "Dockerfile", "line 2"),
    (
        "swallowed",
        PINNED + "COPY prepare.sh /\nRUN bash /prepare.sh\n",
        f"cd /x\ngit checkout {COMMIT}\n./gradlew build\n",
        "prepare.sh",
        "line 2",
    ),
    (
        "swallowed",
        PINNED + "COPY prepare.sh /\nRUN bash -e /prepare.sh\n",
        "set +e\n./gradlew build\nset -e\ntouch done\n",
        "prepare.sh",
        "line 2",
    ),
)

# (what it is, whole Dockerfile, prepare.sh)
SOUND: tuple[tuple[str, str, str], ...] = (
    ("an image by its digest", PINNED, ""),
    ("no image at all", "FROM scratch\n", ""),
    ("a stage", PINNED.replace("\n", " AS a\n") + "FROM a\nCOPY --from=a /x /x\n", ""),
    ("a value from outside", f"ARG D\nFROM debian@{DIGEST}\nARG C\nRUN git clone /b x\n", ""),
    ("a clone of a file", PINNED + "RUN git clone /opt/x.bundle /x\n", ""),
    (
        "a commit checked out later",
        PINNED + f"ARG C={COMMIT}\nRUN git clone https://h/x && cd x\nRUN git -C x checkout $C\n",
        "",
    ),
    (
        "a commit fetched by its id",
        PINNED + f"RUN git clone https://h/x && git fetch o {COMMIT} && git checkout FETCH_HEAD\n",
        "",
    ),
    ("a release's tag", PINNED + "RUN git clone --depth 1 -b v1.2.0 https://h/x\n", ""),
    (
        "a commit checked out by a script",
        PINNED + "RUN git clone https://h/x\nCOPY prepare.sh /\nRUN bash /prepare.sh\n",
        f'set -e\nreadonly BASE={COMMIT}\ngit reset --hard "$BASE"\n',
    ),
    (
        "two clones, and then two commits",
        PINNED + "RUN git clone https://h/x && git clone https://h/y \\\n"
        f" && git -C x checkout {COMMIT} && git -C y checkout {COMMIT}\n",
        "",
    ),
    (
        "a download that is checked",
        PINNED + f"RUN curl -fsSLo a.tgz https://h/a && echo '{SUM}  a.tgz' | sha256sum -c -\n",
        "",
    ),
    (
        "a download checked against a list",
        PINNED + "RUN wget https://h/a.tgz https://h/SHASUMS \\\n && sha256sum -c SHASUMS\n",
        "",
    ),
    (
        "a download checked by a comparison",
        PINNED + f'RUN wget -O a https://h/a && [ "$(sha256sum a)" = "{SUM}  a" ]\n',
        "",
    ),
    ("an ADD with its checksum", PINNED + f"ADD --checksum=sha256:{SUM} https://h/a /a\n", ""),
    ("a server of its own", PINNED + "RUN curl -f http://localhost:80/ >/dev/null\n", ""),
    ("tidying up that may fail", PINNED + "RUN rm -r /var/x || true\n", ""),
    ("a search that may find nothing", PINNED + "RUN make && (grep x y || true)\n", ""),
    ("another way", PINNED + "RUN npm ci || npm install\n", ""),
    ("a failure that ends it", PINNED + "RUN make || { echo no; exit 1; }\n", ""),
    ("a failure looked at", PINNED + "RUN if ! make; then exit 1; fi; echo made\n", ""),
    ("a shell that stops", PINNED + "RUN set -eux; make; pip install x\n", ""),
    (
        "a shell that counts pipes",
        PINNED + 'SHELL ["/bin/bash", "-eo", "pipefail", "-c"]\nRUN make | tail; make\n',
        "",
    ),
    (
        "a script that stops",
        PINNED + "COPY prepare.sh /\nRUN /prepare.sh\n",
        "#!/bin/bash\nset -euo pipefail\nmake\nmake test\n",
    ),
    ("words in a text", PINNED + "RUN echo 'npm ci || true' > /x && true\n", ""),
)
