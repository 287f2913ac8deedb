"""The vendor's library: xmedia_sys, xmedia_mmz and xmedia_cl."""
