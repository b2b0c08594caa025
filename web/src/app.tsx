// What stands around all views: which there are, what the page is about, its answer, and the strip of iterations.
import { Component, type ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { DocumentStore } from "./documents";
import { Help } from "./help";
import { IterationStrip, chosenLoop } from "./iteration-strip";
import { showName } from "./names";
import { type Select, type Selection, useSelection } from "./selection";
import { THEMES, type Theme, savedTheme, showTheme } from "./theme";
import type { Document, DocumentEntry, SessionDocument, ViewEntry } from "./types.gen";
import { type View, chooseEntry } from "./view";
import { VIEWS } from "./views";

interface Frame {
  session: SessionDocument;
  selection: Selection;
  select: Select;
  documents: DocumentStore;
}

export function App({ documents }: { documents: DocumentStore }) {
  const session = useLoaded(() => documents.session(), "session");
  const [selection, select] = useSelection();
  if (session.problem)
    return (
      <main>
        <h1>DeepProf</h1>
        <p class="problem" role="alert">
          {session.problem}
        </p>
      </main>
    );
  if (!session.value)
    return (
      <main aria-busy="true">
        <h1>DeepProf</h1>
        <p class="loading">Loading…</p>
      </main>
    );
  return <Page {...{ session: session.value, selection, select, documents }} />;
}

function Page(props: Frame) {
  const { session, selection, select } = props;
  const [help, setHelp] = useState(false);
  const view = session.views.find(({ name }) => name === selection.view) ?? session.views[0];
  useEffect(() => void (document.title = `${showName(session.title, 80)} – DeepProf`), [session.title]);
  useEffect(() => {
    if (view && view.name !== selection.view) select({ view: view.name }, "replace"); // a copied address says which view it is
  }, [view, selection.view]);
  useKeys(() => setHelp(true));
  return (
    <div class="page">
      <Rail {...props} view={view} />
      <div class="column">
        <header>
          <div class="top">
            <h1 class="name">{showName(session.title, 200)}</h1>
            <Tools {...{ selection, select, view }} openHelp={() => setHelp(true)} />
          </div>
          <dl class="card">
            {session.facts.map(({ name, title, text }) => (
              <div key={name}>
                <dt>{showName(title)}</dt>
                <dd class="name">{showName(text, 100)}</dd>
              </div>
            ))}
          </dl>
          <AnswerLines {...props} />
        </header>
        <IterationStrip {...{ session, selection, select }} />
        <main id="view" data-view={view?.name}>
          {view && <h2 class="view-title">{showName(view.title)}</h2>}
          {!view ? (
            <p class="problem">There is nothing to show.</p>
          ) : view.problem ? (
            <p class="problem name">{showName(view.problem)}</p>
          ) : (
            <Guard key={view.name}>
              <Shown {...props} view={view} />
            </Guard>
          )}
          {session.notes.length > 0 && (
            <ul class="notes" aria-label="Notes">
              {session.notes.map((note) => (
                <li key={note} class="name">
                  {showName(note)}
                </li>
              ))}
            </ul>
          )}
        </main>
      </div>
      <Help open={help} close={() => setHelp(false)} />
    </div>
  );
}

/** The views: a list at the left, in narrow windows a field on top. */
function Rail({ session, selection, select, view }: Frame & { view: ViewEntry | undefined }) {
  return (
    <nav aria-label="Views" class="rail">
      <a
        class="skip"
        href="#view"
        onClick={(event) => (
          event.preventDefault(),
          document.querySelector<HTMLElement>("main a, main button, main [tabindex='0']")?.focus()
        )}
      >
        To the view
      </a>
      <p class="brand">DeepProf</p>
      <ul>
        {session.views.map(({ name, title, problem }) => (
          <li key={name}>
            <a
              href={`#${name}`}
              aria-current={name === view?.name ? "page" : undefined}
              class={problem ? "empty" : ""}
              onClick={(event) =>
                !event.ctrlKey && !event.metaKey && !event.shiftKey && (event.preventDefault(), select({ view: name }))
              }
            >
              {showName(title, 40)}
            </a>
          </li>
        ))}
      </ul>
      <select
        aria-label="View"
        value={view?.name ?? selection.view}
        onChange={(event) => select({ view: event.currentTarget.value })}
      >
        {session.views.map(({ name, title }) => (
          <option key={name} value={name}>
            {showName(title, 40)}
          </option>
        ))}
      </select>
      <p class="version">{session.version}</p>
    </nav>
  );
}

function Tools({
  selection,
  select,
  view,
  openHelp,
}: {
  selection: Selection;
  select: Select;
  view: ViewEntry | undefined;
  openHelp: () => void;
}) {
  const [theme, setTheme] = useState<Theme>(savedTheme);
  const searches = VIEWS.find(({ name }) => name === view?.name)?.searches && !view?.problem;
  useEffect(() => showTheme(theme), [theme]);
  return (
    <div class="tools" role="search">
      {searches && (
        <input
          type="search"
          aria-label="Search names"
          placeholder="Search  /"
          value={selection.search ?? ""}
          maxLength={200}
          onInput={(event) => select({ search: event.currentTarget.value || undefined }, "replace")}
          onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()}
        />
      )}
      <select aria-label="Theme" value={theme} onChange={(event) => setTheme(event.currentTarget.value as Theme)}>
        {THEMES.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
      <button type="button" aria-label="Help" title="?" onClick={openHelp}>
        ?
      </button>
    </div>
  );
}

const SIGNS = { "": "", info: "ⓘ", warning: "⚠", critical: "⚠" } as const;

function AnswerLines({ session, select }: Frame) {
  const { lines, severity, finding } = session.answer;
  const shown = finding !== null && session.views.some(({ name }) => name === "findings");
  return (
    <div class={`answer ${severity}`}>
      {lines.map((line, at) => (
        <p key={at} class="name">
          {at === 1 && severity && (
            <span class="sign" role="img" aria-label={severity}>
              {SIGNS[severity]}{" "}
            </span>
          )}
          {showName(line)}
          {shown && at === lines.length - 1 && (
            <>
              {" "}
              <button type="button" class="link" onClick={() => select({ view: "findings", finding: finding! })}>
                Why?
              </button>
            </>
          )}
        </p>
      ))}
    </div>
  );
}

/** The view with the document that fits the selection best. */
function Shown(props: Frame & { view: ViewEntry }) {
  const { view, session, selection } = props;
  const loop = chosenLoop(session, selection);
  const free = selection.loop === undefined && selection.rank === undefined;
  const wanted = { ...selection, loop: loop?.loop, rank: selection.rank ?? loop?.rank };
  const entry = chooseEntry(view, wanted, free || session.server);
  const known = VIEWS.find(({ name }) => name === view.name);
  if (!entry && known && view.documents.length)
    return <p class="problem">This page has the worst loops and ranks only, and not this one; deepprof view TRACE has all.</p>;
  if (!entry || !known) return <p class="problem">This page has nothing to show for “{showName(view.title)}”.</p>;
  const key = known.key?.(entry, view, session, selection) ?? entry.key;
  return <Loaded {...props} entry={entry} documentKey={key} known={known} />;
}

function Loaded({
  documentKey,
  known,
  view,
  ...rest
}: Frame & { view: ViewEntry; entry: DocumentEntry; documentKey: string; known: View<any> }) {
  const { key, value, problem } = useLoaded<Document>(() => rest.documents.load(documentKey), documentKey);
  const { component: Shows } = known;
  if (problem)
    return (
      <p class="problem" role="alert">
        {problem}
      </p>
    );
  return value ? (
    <div aria-busy={key !== documentKey}>
      <Shows {...rest} document={value} entries={view.documents} />
    </div>
  ) : (
    <p aria-busy="true" class="loading">
      Loading…
    </p>
  );
}

/** Shows a sentence where a view fails, so that the others can still be seen. */
class Guard extends Component<{ children: ComponentChildren }, { problem: string }> {
  state = { problem: "" };

  componentDidCatch(error: Error) {
    this.setState({ problem: error.message });
    console.error(error);
  }

  render() {
    return this.state.problem ? (
      <p class="problem" role="alert">
        This view failed: {this.state.problem}
      </p>
    ) : (
      this.props.children
    );
  }
}

/** Keys for all views: `/` searches, `?` helps, others press the button or link that says so by `data-key`. */
function useKeys(help: () => void): void {
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      if (event.key === "?") help();
      else if (event.key === "/") document.querySelector<HTMLElement>("input[type=search]")?.focus();
      else if (/^[a-z]$/.test(event.key)) document.querySelector<HTMLElement>(`[data-key="${event.key}"]`)?.click();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("input, select, textarea, dialog") !== null;
}

/** Returns what `load` gives, or its problem; asked again when `key` changes, and until then the last one is shown. */
export function useLoaded<T>(load: () => Promise<T>, key: string): { key?: string; value?: T; problem?: string } {
  const [state, setState] = useState<{ key: string; value?: T; problem?: string }>({ key: "" });
  const wanted = useRef(key);
  useEffect(() => {
    wanted.current = key;
    const show = (result: { value?: T; problem?: string }) => wanted.current === key && setState({ key, ...result });
    load().then(
      (value) => show({ value }),
      (error: Error) => show({ problem: error.message }),
    );
  }, [key]);
  return state.key === key || state.value ? state : {};
}
