"""A run's sharing process, from its agent's side: started with the folders, told the peers, restarted if it ends."""

from potluck.core.kept_process import KeptProcess
from potluck.sharing.messages import SharingSettings, SharingState


class SharingProcess(KeptProcess[SharingState]):
    """The process; one that is restarted goes on where the one before was."""

    def __init__(self, settings: SharingSettings) -> None:
        super().__init__("potluck.sharing.main", "sharing", SharingState(port=0, have_bytes=0, total_bytes=0))
        self.start()
        self.update(settings)
