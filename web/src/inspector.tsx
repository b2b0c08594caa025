// What is known of the box or frame that is chosen, at the right of its picture.
import type { ComponentChildren } from "preact";
import { showName } from "./names";
import type { Select } from "./selection";
import type { SessionDocument } from "./types.gen";

export type Fact = readonly [name: string, value: ComponentChildren];

interface InspectorProps {
  kind: string;
  title: string;
  full?: string;
  facts: (Fact | null | false)[];
  children?: ComponentChildren;
}

export function Inspector({ kind, title, full, facts, children }: InspectorProps) {
  return (
    <aside class="inspector" aria-label="What is chosen">
      <p class="kind">{kind}</p>
      <h2 class="name">{showName(title, 160)}</h2>
      {full && full !== title && <p class="name full">{showName(full, 500)}</p>}
      <dl>
        {facts
          .filter((fact) => !!fact)
          .map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
      {children}
    </aside>
  );
}

/** Returns where the editor opens a line, null for a path that is not complete. */
export function editorAddress(file: string, line: number): string | null {
  if (!/^(\/|[A-Za-z]:[\\/])/.test(file)) return null;
  const path = file.replaceAll("\\", "/").split("/").map(encodeURIComponent).join("/").replace(/^([A-Za-z])%3A/, "$1:");
  return `vscode://file/${path.replace(/^\//, "")}:${Math.max(line, 1)}:1`;
}

/** A place in code; where its path is complete it is a link that opens it in the editor. */
export function Source({ file, line }: { file: string; line: number }) {
  const text = showName(line > 0 ? `${file}:${line}` : file, 300);
  const address = editorAddress(file, line);
  if (address === null) return <span class="name">{text}</span>;
  return <a class="name" href={address} data-key="e" title="Open in the editor (e)">{text}</a>;
}

/** Returns a `file:line` in its two parts. */
export function splitSource(source: string): { file: string; line: number } {
  const [, file, line] = /^(.*?)(?::(\d+))?$/s.exec(source)!;
  return { file, line: line ? Number(line) : -1 };
}

/** A link to a finding, with its sign. */
export function FindingLink({ finding, select, session }: { finding: number; select: Select; session: SessionDocument }) {
  if (!session.views.some(({ name }) => name === "findings")) return <span>⚠ number {finding + 1}</span>;
  return (
    <button type="button" class="link" onClick={() => select({ view: "findings", finding })}>
      ⚠ number {finding + 1}
    </button>
  );
}
