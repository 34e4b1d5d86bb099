/// <reference types="node" />
/// <reference lib="esnext.disposable" />

import type { ChildProcess } from "node:child_process";

export interface StartOptions {
  /**
   * Options as on the command line: `["--maxmemory", "10mb"]`. A configuration file may come first.
   * Options for the log have no effect.
   */
  options?: readonly (string | number)[];
  /** How long the start may take. 10 s if it is not given. */
  startMsMax?: number;
}

export interface Server extends AsyncDisposable {
  /** Where clients connect: `redis://127.0.0.1:PORT`. */
  readonly url: string;
  readonly port: number;
  /** The process of the server, for tests that send it signals. */
  readonly process: ChildProcess;
  /** What the server has printed. */
  readonly log: string;
  /**
   * Makes the server what it was when it was started, at the same address: by commands, or by another server in
   * place of this one.
   */
  reset(): Promise<void>;
  /** Ends the server. */
  stop(): Promise<void>;
}

/** Starts a server on a free port of 127.0.0.1, without files. It ends with this process. */
export function start(options?: StartOptions): Promise<Server>;

/** Resets the server that the set-up for Vitest or Jest has started for this run of tests. */
export function reset(): Promise<void>;

/** The path of the program. */
export function find(): string;
