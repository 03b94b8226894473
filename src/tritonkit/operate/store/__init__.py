"""Copies of what is served: signed, kept in any store, encrypted there, and put back in one step."""

from tritonkit.operate.store.backup import Backup, Listed, back_up, list_backups
from tritonkit.operate.store.prune import Pruned, prune
from tritonkit.operate.store.remote import Store, open_store
from tritonkit.operate.store.restore import Restored, restore
from tritonkit.operate.store.signature import check, sign

__all__ = [
    "Backup",
    "Listed",
    "Pruned",
    "Restored",
    "Store",
    "back_up",
    "check",
    "list_backups",
    "open_store",
    "prune",
    "restore",
    "sign",
]
