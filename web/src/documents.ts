// Documents by key, wherever they are: in the page, packed in the page, or at the server that the page came from.
import type { Document, SessionDocument, SourceDocument } from "./types.gen";

type Source = { documents: Record<string, unknown> } | { packed: string } | { server: true };

const AGAIN_MS = 3_000;

export class DocumentStore {
  private readonly loads = new Map<string, Promise<unknown>>();
  private inlined: Promise<Record<string, unknown>> | null;

  constructor(source: Source) {
    this.inlined = "documents" in source ? Promise.resolve(source.documents) : "packed" in source ? unpack(source.packed) : null;
  }

  /** Returns the document of `key`; a failure is an Error whose message is a sentence to show. */
  load<D extends Document = Document>(key: string): Promise<D> {
    return this.loadAny<D>(key);
  }

  session(): Promise<SessionDocument> {
    return this.loadAny<SessionDocument>("session");
  }

  /** Like `load`, for what is no view's document, such as a region. */
  loadAny<T>(key: string): Promise<T> {
    let loading = this.loads.get(key);
    if (!loading) {
      loading = this.inlined ? this.inlined.then((all) => pick(all, key)) : ask(`api/documents/${key}`);
      this.loads.set(key, loading);
      loading.catch(() => this.loads.delete(key)); // asked again when it is wanted again
    }
    return loading as Promise<T>;
  }

  /** Whether all there is, is in the page. */
  get isFile(): boolean {
    return this.inlined !== null;
  }

  /** Returns whether the page has `key`; a server is asked for it only when it is loaded. */
  async has(key: string): Promise<boolean> {
    return this.inlined === null || Object.hasOwn(await this.inlined, key);
  }

  /** Returns the lines around a line of code; only a server has them. */
  source(file: string, line: number): Promise<SourceDocument> {
    return ask(`api/source?${new URLSearchParams({ file, line: String(line) })}`) as Promise<SourceDocument>;
  }

  /** Forgets documents that have changed at the server, so that they are asked for again. */
  forget(key: string): void {
    if (!this.inlined) this.loads.delete(key);
  }

  /**
   * Calls `heard` with the text of each event of the server called `name`, and `connected` when the stream breaks or is
   * back; returns how to stop. There are none in a file.
   */
  follow(name: string, heard: (text: string) => void, connected: (is: boolean) => void): () => void {
    if (this.inlined) return () => {};
    let events: EventSource;
    let again: ReturnType<typeof setTimeout> | undefined;
    const open = () => {
      events = new EventSource("api/events");
      events.addEventListener(name, (event: MessageEvent<string>) => heard(event.data));
      events.addEventListener("open", () => connected(true));
      events.addEventListener("error", () => {
        connected(false);
        if (events.readyState === EventSource.CLOSED) again = setTimeout(open, AGAIN_MS); // refused: it gives up by itself
      });
    };
    open();
    return () => (clearTimeout(again), events.close());
  }
}

/** Returns the store of this page: what its data element says. */
export function openDocuments(): DocumentStore {
  const text = document.getElementById("deepprof-data")?.textContent;
  return new DocumentStore(text ? JSON.parse(text) : { server: true });
}

/** Returns the bytes of base64 text. */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/** Returns what a gzip of `bytes` holds. */
export async function gunzip(bytes: Uint8Array<ArrayBuffer>): Promise<Response> {
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

async function unpack(packed: string): Promise<Record<string, unknown>> {
  return (await (await gunzip(fromBase64(packed))).json()).documents;
}

function pick(all: Record<string, unknown>, key: string): unknown {
  if (!Object.hasOwn(all, key)) throw new Error(`This page has no document “${key}”.`);
  return all[key];
}

let edition: string | null = null; // of the session: a server that has another one since says so

async function ask(address: string): Promise<unknown> {
  const headers = { accept: "application/json", ...(edition === null ? {} : { "if-match": edition }) };
  const answer = await fetch(address, { headers }).catch(() => {
    throw new Error("The server does not answer; is it still running?");
  });
  if (answer.ok && address.endsWith("/session")) edition = answer.headers.get("etag");
  if (answer.ok) return answer.json();
  const problem = answer.headers.get("content-type")?.startsWith("text/plain") ? await answer.text() : "";
  throw new Error(problem || `The server answers ${answer.status} for ${address}.`);
}
