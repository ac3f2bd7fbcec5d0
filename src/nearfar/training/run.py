"""One run from configuration to verdict: data, method, training, evaluation, report, all in one folder."""

from pathlib import Path

from rich.console import Console

from nearfar.config import TrainConfig
from nearfar.evaluation.embedding_transform import EmbeddingChoice, choose_transform
from nearfar.evaluation.results import Results
from nearfar.model.card import Card, make_card
from nearfar.model.encoder import Encoder
from nearfar.model.load import load
from nearfar.model.save import write_model
from nearfar.nn.whitening import EmbeddingTransform
from nearfar.progress import print_line, stage
from nearfar.training.attachments import Attachments
from nearfar.training.errors import NotFiniteError
from nearfar.training.kind_comparison import KeptStart
from nearfar.training.model_selection import ModelSelection, select_weights
from nearfar.training.processes import is_rank_zero, leave_process_group, shards_weights
from nearfar.training.python_inputs import unstored
from nearfar.training.resume import restore_newest
from nearfar.training.run_folder import list_skipped, remove_failed_start, write_run_files
from nearfar.training.setup import TrainingSetup
from nearfar.training.signals import TrainingStopped
from nearfar.training.time_budget import comparison_seconds, fix_steps
from nearfar.training.tower_start import fit_projections
from nearfar.training.view_trial import choose_view_factors


class Run:
    """A run folder and how it is filled. Lightning, evaluation and report are imported when they are needed.

    Args:
        config: what the run is a function of.
        folder: where it writes.
        resume: continue from the newest checkpoint in the folder.
        console: where it prints; only rank 0 writes and prints.
        attachments: callbacks and loggers of the caller.
        all_metrics: print every metric at the end, not only the main one of each protocol.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: Path,
        *,
        resume: bool,
        console: Console,
        attachments: Attachments | None = None,
        all_metrics: bool = False,
    ) -> None:
        self.all_metrics = all_metrics
        self.is_rank_zero, self.is_new = is_rank_zero(), not folder.exists()
        self.folder, self.console = folder, console if self.is_rank_zero else Console(quiet=True)
        for line in unstored(config, attachments):
            print_line(self.console, line)
        self.setup = TrainingSetup(config, self.console, attachments)
        spent = choose_view_factors(self.setup, folder, self.console)
        spent += fit_projections(self.setup, self.console)
        fix_steps(self.setup, folder, self.console, spent=spent + comparison_seconds(self.setup))
        self.state = restore_newest(self.setup, folder, self.console) if resume else None
        self.transform: EmbeddingTransform | None = None  # of the features, once they are learned
        self.embedding = EmbeddingChoice("plain", config.embedding)
        self.selection: ModelSelection | KeptStart | None = None  # which weights, if they were compared with the start
        self._listed = 0  # samples in skipped.txt

    def execute(self) -> Results:
        """Train, evaluate and report.

        Returns:
            The evaluation; empty on other ranks than 0.

        Raises:
            TrainingStopped: by Ctrl-C or SIGTERM before the end.
        """
        if not self.is_rank_zero:
            self._fit()
            leave_process_group(wait=True)  # until rank 0 has written the model
            return Results()
        write_run_files(self.setup, self.folder)
        self._list_skipped()
        print_line(self.console, self.setup.modality.show(self.setup.train, self.folder))
        try:
            self._fit()
        except (Exception, TrainingStopped) as error:
            if self._failed_before_training(error):
                remove_failed_start(self.folder)
            else:
                if isinstance(error, TrainingStopped):
                    self._list_skipped()
                self._report()
            raise
        self._list_skipped()  # streamed files are known to be unreadable only once they are read
        self._select_weights()
        self._choose_embedding()
        write_model(self.setup.method.encoder.state_dict(), self._card(), self.folder, self.transform)
        leave_process_group(wait=True)
        try:
            results = self._evaluate()
        except BaseException:
            self._report()
            raise
        self._tell(results, self._write_report())
        return results

    def trained_encoder(self) -> Encoder:
        """The encoder after training, on every rank; what rank 0 alone knows is read from the run folder."""
        if self.is_rank_zero or shards_weights(self.setup.config) or self.setup.comparison is not None:
            return load(self.folder)
        self._select_weights()  # this and the next are the same on every rank: no chance, the same samples and weights
        if self.setup.config.embedding != "plain":
            self._choose_embedding()
        return self._encoder().cpu().eval()

    def _encoder(self) -> Encoder:
        return Encoder(self.setup.method.encoder, self.setup.modality, self._card(), transform=self.transform)

    def _select_weights(self) -> None:
        """Keep the start, or an earlier checkpoint, if it is the better encoder."""
        self.selection = select_weights(self.setup, self.folder)
        if self.selection is not None:
            print_line(self.console, self.selection.line())

    def _choose_embedding(self) -> None:
        """Find out how the features become embeddings; a network that gives nonsense keeps its own."""
        setup = self.setup
        self.transform, self.embedding = choose_transform(
            self._encoder().to(setup.device), setup.train, setup.validation, setup.config.embedding
        )
        if (line := self.embedding.line()) is not None:
            print_line(self.console, line)

    def _fit(self) -> None:
        from nearfar.training.fit import fit

        self.setup.method = fit(self.setup, self.folder, self.console, self.state)
        self.state = None

    def _evaluate(self) -> Results:
        from nearfar.training.final_evaluation import evaluate_trained

        with stage(self.console, "evaluating"):
            return evaluate_trained(self.setup, self.folder, self.console)

    def _tell(self, results: Results, page: Path | None) -> None:
        """The end of a run: verdict, numbers, report, and what to try next."""
        from nearfar.report.refresh import print_verdict

        print_verdict(self.folder, results, self.console, report=page, every=self.all_metrics)
        if page is None:
            print_line(self.console, f"run: {self.folder}")

    def _report(self) -> None:
        if (page := self._write_report()) is not None:
            print_line(self.console, f"report: {page}")

    def _write_report(self) -> Path | None:
        """Write the page; a failure, as on a full disk, costs nothing else."""
        from nearfar.report.page import write_report

        try:
            return write_report(self.folder)
        except OSError as error:
            hint = f"nearfar report {self.folder}"
            print_line(self.console, f"the report was not written ({error}); free some space, then: {hint}")
            return None

    def _card(self) -> Card:
        setup = self.setup
        feeding = setup.modality.card()
        if "stored_size" in feeding:  # as it was read, whether a setting said so or the data did
            feeding["stored_size"] = setup.train.size
        return make_card(
            setup.config,
            feeding,
            temperature=getattr(setup.method, "temperature", None),
            embedding=self.embedding.card(),
            data={"fingerprint": setup.fingerprint, "samples": len(setup.train)},
            adaptation=None if self.selection is None else self.selection.card(),
        )

    def _failed_before_training(self, error: BaseException) -> bool:
        """Whether a new run failed before its first step, by a setting or the user's code: there is nothing to keep."""
        one_process = self.setup.config.processes * self.setup.config.nodes == 1
        by_settings = isinstance(error, Exception) and not isinstance(error, OSError | NotFiniteError)
        return self.is_new and one_process and by_settings and not (self.folder / "metrics.jsonl").exists()

    def _list_skipped(self) -> None:
        """List the samples that could not be used, if there are more than before."""
        test = self.setup.test
        skipped = [*self.setup.train.skipped, *(test.skipped if test is not None else [])]
        if len(skipped) > self._listed:
            self._listed = len(skipped)
            list_skipped(skipped, self.folder, self.console)
