// What stands around all views: which there are, what the page is about, its answer, and the strip of iterations.
import { useEffect, useState } from "preact/hooks";
import type { DocumentStore } from "./documents";
import { type Select, type Selection, useSelection } from "./selection";
import type { Document, DocumentEntry, SessionDocument, ViewEntry } from "./types.gen";
import { chooseEntry } from "./view";
import { VIEWS } from "./views";

export function App({ documents }: { documents: DocumentStore }) {
  const session = useLoaded(() => documents.session(), "session");
  const [selection, select] = useSelection();
  if (session.problem) return <main><p class="problem" role="alert">{session.problem}</p></main>;
  if (!session.value) return <main aria-busy="true" />;
  const all = session.value;
  const view = all.views.find(({ name }) => name === selection.view) ?? all.views[0];
  return (
    <div class="page">
      <nav aria-label="Views">
        {all.views.map(({ name, title }) => (
          <a href={`#${name}`} aria-current={name === view.name ? "page" : undefined}>{title}</a>
        ))}
      </nav>
      <header><h1>{all.title}</h1>{all.answer.lines.map((line) => <p>{line}</p>)}</header>
      <main>
        {view.problem ? <p class="problem">{view.problem}</p> : <Shown {...{ view, session: all, selection, select, documents }} />}
      </main>
    </div>
  );
}

interface ShownProps {
  view: ViewEntry;
  session: SessionDocument;
  selection: Selection;
  select: Select;
  documents: DocumentStore;
}

function Shown(props: ShownProps) {
  const entry = chooseEntry(props.view, props.selection);
  const known = VIEWS.find(({ name }) => name === props.view.name);
  if (!entry || !known) return <p class="problem">This page cannot show “{props.view.title}”.</p>;
  const key = known.key?.(entry, props.view, props.session, props.selection) ?? entry.key;
  return <Loaded {...props} entry={entry} documentKey={key} component={known.component} />;
}

function Loaded({ documentKey, component: Component, view, ...rest }: ShownProps & { entry: DocumentEntry; documentKey: string; component: (typeof VIEWS)[number]["component"] }) {
  const { value, problem } = useLoaded<Document>(() => rest.documents.load(documentKey), documentKey);
  if (problem) return <p class="problem" role="alert">{problem}</p>;
  return value ? <Component {...rest} document={value} entries={view.documents} /> : <p aria-busy="true" class="loading">Loading…</p>;
}

/** Returns what `load` gives, or its problem; asked again when `key` changes. */
export function useLoaded<T>(load: () => Promise<T>, key: string): { value?: T; problem?: string } {
  const [state, setState] = useState<{ key: string; value?: T; problem?: string }>({ key: "" });
  useEffect(() => {
    let wanted = true;
    load().then(
      (value) => wanted && setState({ key, value }),
      (error: Error) => wanted && setState({ key, problem: error.message }),
    );
    return () => void (wanted = false);
  }, [key]);
  return state.key === key ? state : {};
}
