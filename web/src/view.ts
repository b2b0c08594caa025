// A view of the page: one file with its component, one line in views.ts.
import type { ComponentType } from "preact";
import type { DocumentStore } from "./documents";
import type { Select, Selection } from "./selection";
import type { Document, DocumentEntry, SessionDocument, ViewEntry } from "./types.gen";

export interface ViewProps<D extends Document = Document> {
  document: D;
  entry: DocumentEntry;
  entries: DocumentEntry[]; // all documents of the view
  session: SessionDocument;
  selection: Selection;
  select: Select;
  documents: DocumentStore;
}

export interface View<D extends Document = Document> {
  name: string; // as in the session's views
  component: ComponentType<ViewProps<D>>;
  searches?: boolean; // it shows what the search finds
  /** Returns the key to load instead of the entry's, where a server has more documents than the session lists. */
  key?: (entry: DocumentEntry, view: ViewEntry, session: SessionDocument, selection: Selection) => string;
}

/** Returns the document of `view` that fits the selection best: the one it names, else that of its loop and rank. */
export function chooseEntry(view: ViewEntry, selection: Selection, any = false): DocumentEntry | undefined {
  const named = view.documents.find((entry) => entry.key === selection.document);
  if (named) return named;
  const fit = (entry: DocumentEntry) =>
    agreement(entry.loop, selection.loop) +
    agreement(entry.rank, selection.rank) +
    (entry.iteration === null || entry.iteration === selection.iteration ? 0 : -9); // of another one than is selected
  // A file has those of some loops and ranks only. Of a server, and where nothing is selected, any will do.
  const able = any ? view.documents : view.documents.filter((entry) => isAbout(entry, selection));
  return able.reduce<DocumentEntry | undefined>(
    (best, entry) => (best && fit(best) >= fit(entry) ? best : entry),
    undefined,
  );
}

function isAbout(entry: DocumentEntry, { loop, rank }: Selection): boolean {
  if (entry.loop !== null && loop !== undefined) return entry.loop === loop;
  return entry.rank === null || rank === undefined || entry.rank === rank;
}

function agreement(own: number | null, wanted: number | undefined): number {
  return own === null || wanted === undefined ? 0 : own === wanted ? 2 : -1;
}
