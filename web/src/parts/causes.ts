import type { FindingEntry } from "../types.gen";

export interface PlacedFinding {
  number: number;
  /** How many causes it stands below. */
  depth: number;
}

/** The numbers of the findings in the order of their cards: each symptom under its cause, else as they come. */
export function causeOrder(findings: Pick<FindingEntry, "cause">[]): PlacedFinding[] {
  const placed: PlacedFinding[] = [];
  const seen = new Set<number>();
  const place = (number: number, depth: number) => {
    if (seen.has(number)) return;
    seen.add(number);
    placed.push({ number, depth });
    findings.forEach((finding, symptom) => finding.cause === number && place(symptom, depth + 1));
  };
  findings.forEach((finding, number) => (finding.cause === null || !(finding.cause in findings)) && place(number, 0));
  findings.forEach((_, number) => place(number, 0)); // those that explain each other in a circle
  return placed;
}
