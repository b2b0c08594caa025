import { showName } from "../names";

/** Sentences below a heading; nothing where there are none. */
export function Sentences({ title, sentences }: { title: string; sentences: string[] }) {
  if (sentences.length === 0) return null;
  return (
    <section>
      <h3>{title}</h3>
      <ul class="sentences">
        {sentences.map((sentence) => (
          <li>{showName(sentence)}</li>
        ))}
      </ul>
    </section>
  );
}
