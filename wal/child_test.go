package wal

func childMain(string) int { return 2 }
