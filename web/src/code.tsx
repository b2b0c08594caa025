// Lines of code around one, where the page's server can read the file.
import { useLoaded } from "./app";
import type { DocumentStore } from "./documents";
import { showName } from "./names";
import type { SessionDocument } from "./types.gen";

interface CodeProps {
  file: string;
  line: number;
  session: SessionDocument;
  documents: DocumentStore;
}

/** The code; nothing in a page that is a file, which holds none. */
export function Code(props: CodeProps) {
  return props.session.server && props.line > 0 ? <Lines {...props} /> : null;
}

function Lines({ file, line, documents }: CodeProps) {
  const { value, problem } = useLoaded(() => documents.source(file, line), `${file}:${line}`);
  if (problem || value?.problem) return <p class="code-problem">{showName(problem ?? value?.problem ?? "")}</p>;
  if (!value) return null;
  return (
    <pre class="code" aria-label={`Code around line ${line}`} tabIndex={0}>
      {value.lines.map((text, at) => (
        <span key={at} class={value.first + at === line ? "here" : ""}>
          <i>{String(value.first + at).padStart(5)}</i> {showName(text, 400)}
          {"\n"}
        </span>
      ))}
    </pre>
  );
}
