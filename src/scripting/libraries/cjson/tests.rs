//! Texts and tables as redis-server 7.0.15 writes and reads them.
