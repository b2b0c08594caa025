export type Severity = "info" | "warning" | "critical";

const ICONS: Record<Severity, string> = { critical: "✖", warning: "▲", info: "●" };

/** How bad a finding is: an icon and a word, coloured. */
export function SeverityBadge({ severity }: { severity: Severity }) {
  return (
    <span class={`severity severity-${severity}`}>
      <span aria-hidden="true">{ICONS[severity]} </span>
      {severity}
    </span>
  );
}
