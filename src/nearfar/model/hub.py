"""Encoders on the Hugging Face hub: `save_pretrained`, `push_to_hub` and `from_pretrained` of its own library."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from huggingface_hub import ModelCard, ModelHubMixin

from nearfar.messages import one_line
from nearfar.weights.names import is_hub_name

if TYPE_CHECKING:
    from nearfar.model.encoder import Encoder


def check_repository(name: str) -> None:
    """Refuse what cannot be the name of a model on the hub."""
    if not is_hub_name(name):
        raise ValueError(f"the repository is {name!r}, expected user/name of letters, digits, '-', '_' and '.'")


def push_folder(folder: Path, repository: str, *, private: bool = True) -> str:
    """Upload a folder that `nearfar.export` wrote; returns the address. Needs a network and a login."""
    from huggingface_hub import HfApi

    check_repository(repository)
    try:
        api = HfApi()
        address = str(api.create_repo(repository, private=private, exist_ok=True))
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Encoder trained with nearfar")
    except Exception as error:  # no network, no login, no permission: each in its own way
        raise RuntimeError(
            f"{repository} could not be uploaded ({one_line(error, 160)}); the folder {folder} is complete: log in "
            f"with `hf auth login` and upload it with `hf upload {repository} {folder}`"
        ) from None
    return address


class HubMixin(ModelHubMixin, library_name="nearfar"):
    """What `huggingface_hub.ModelHubMixin` needs of an encoder."""

    _hub_mixin_config: Any = {}  # noqa: RUF012, the mixin's name: the card says how an encoder is made, not arguments
    _opened_by: str | None = None

    def _save_pretrained(self, save_directory: Path) -> None:
        from nearfar.model.export.hub_page import public_card
        from nearfar.model.export.layouts import save_for_hub

        encoder = cast("Encoder", self)
        self._opened_by = save_for_hub(encoder, public_card(self._measured_card()), save_directory)
        encoder.modality.save(save_directory)
        (save_directory / "README.md").unlink(missing_ok=True)  # of another model, perhaps

    def generate_model_card(self, *args: Any, name: str | None = None, **kwargs: Any) -> ModelCard:
        """The page of the hub, `README.md`.

        Args:
            args, kwargs: of other models' pages; not used.
            name: of the model on the hub.
        """
        from nearfar.model.export.hub_page import HERE, public_card, readme

        return ModelCard(readme(public_card(self._measured_card()), alone=self._opened_by, name=name or HERE))

    def _measured_card(self) -> dict[str, Any]:
        from nearfar.model.card import with_metrics

        encoder = cast("Encoder", self)
        card = {**encoder.card, "num_features": encoder.num_features}
        return card if encoder.folder is None else with_metrics(card, encoder.folder / "evaluation.json")

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the encoder with its page; returns the address of the commit. Needs a network and a login.

        Args:
            repo_id: user/name; it is made if it is not there.
            options: of `huggingface_hub.ModelHubMixin.push_to_hub`: private, token, branch, commit_message, ...
        """
        check_repository(repo_id)
        page = {"name": repo_id, **(options.pop("model_card_kwargs", None) or {})}
        try:
            return str(super().push_to_hub(repo_id, model_card_kwargs=page, **options))
        except Exception as error:  # no network, no login, no permission: each in its own way
            raise RuntimeError(
                f"{repo_id} could not be uploaded ({one_line(error, 160)}); log in with `hf auth login`, or write a "
                "folder with save_pretrained and upload that"
            ) from None

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
        **model_kwargs: Any,
    ) -> Self:
        """Open an encoder of the hub, or a folder that `save_pretrained` wrote.

        Args:
            pretrained_model_name_or_path: user/name, or a folder.
            force_download: fetch again what is there.
            token: of the hub; None: that of `hf auth login`.
            cache_dir: where the hub keeps its files.
            local_files_only: use the cache alone.
            revision: a branch, a tag or a commit.
            model_kwargs: of `nearfar.load`: device, dim, encoder.
        """
        from nearfar.model.load import load
        from nearfar.weights.hub import download

        folder = Path(pretrained_model_name_or_path).expanduser()
        if not folder.is_dir():
            check_repository(str(pretrained_model_name_or_path))
            folder = download(
                str(pretrained_model_name_or_path),
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                token=token,
            )
        return cast(Self, load(folder, **model_kwargs))
