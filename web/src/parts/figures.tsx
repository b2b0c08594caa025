import { showName } from "../names";
import type { Figure } from "../types.gen";

/** Numbers with their names, as the paper's Table III. */
export function FigureTable({ title, figures }: { title: string; figures: Figure[] }) {
  if (figures.length === 0) return null;
  return (
    <table class="evidence">
      <caption>{title}</caption>
      <tbody>
        {figures.map((figure) => (
          <tr>
            <th scope="row">{showName(figure.title, 80)}</th>
            <td class="number">{showName(figure.text, 80)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
