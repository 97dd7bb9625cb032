//! The package of the packet pipeline (dynamic device personalization).
