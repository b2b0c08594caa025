import "./charts.css";
import { useEffect, useRef } from "preact/hooks";
import { causeOrder } from "./parts/causes";
import { FigureTable } from "./parts/figures";
import { SeverityBadge } from "./parts/severity";
import { ShortSource } from "./parts/source";
import { FindingBars, FindingTrend } from "./parts/pictures";
import { formatDuration, formatRatio } from "./format";
import { showName } from "./names";
import { Sentences } from "./parts/sentences";
import type { FindingEntry, FindingsDocument } from "./types.gen";
import type { View, ViewProps } from "./view";

/** The findings as cards, each cause before what it explains. */
function Findings({ document, selection }: ViewProps<FindingsDocument>) {
  return (
    <div class="findings">
      {document.findings.length === 0 && <p>No finding: nothing in this trace is clearly slower than it must be.</p>}
      {causeOrder(document.findings).map(({ number, depth }) => (
        <Card
          key={number}
          number={number}
          depth={depth}
          finding={document.findings[number]}
          cause={document.findings[document.findings[number].cause ?? -1]}
          isChosen={selection.finding === number}
        />
      ))}
      <Sentences title="What no finding names" sentences={document.unnamed} />
      <Sentences title="What was not recorded" sentences={document.unexamined} />
    </div>
  );
}

interface CardProps {
  number: number;
  depth: number;
  finding: FindingEntry;
  cause: FindingEntry | undefined;
  isChosen: boolean;
}

function Card({ number, depth, finding, cause, isChosen }: CardProps) {
  const card = useRef<HTMLElement>(null);
  useEffect(() => {
    if (isChosen) card.current?.scrollIntoView({ block: "nearest" });
  }, [isChosen]);
  return (
    <article
      ref={card}
      id={`finding-${number}`}
      class={`finding finding-${finding.severity} depth-${Math.min(depth, 3)}`}
      aria-labelledby={`finding-${number}-title`}
      aria-current={isChosen ? "true" : undefined}
    >
      <div class="finding-head">
        <SeverityBadge severity={finding.severity} />
        <code class="quiet">{finding.rule}</code>
        {cause && <span class="quiet">explained by {cause.rule}</span>}
      </div>
      <h3 id={`finding-${number}-title`}>{showName(finding.title, 200)}</h3>
      <Facts finding={finding} />
      <p>{showName(finding.summary)}</p>
      {finding.advice !== "" && (
        <p class="advice">
          <strong>What to do.</strong> {showName(finding.advice)}
        </p>
      )}
      <div class="pictures">
        {finding.trends.map((trend) => (
          <FindingTrend trend={trend} />
        ))}
        {finding.bars.map((bars) => (
          <FindingBars bars={bars} />
        ))}
        <FigureTable title="Evidence" figures={finding.evidence} />
      </div>
      {finding.jumps.length > 0 && (
        <ul class="jumps" aria-label="Where it is seen">
          {finding.jumps.map((jump) => (
            <li>
              <a href={`#${jump.fragment}`}>{showName(jump.title, 100)} →</a>
            </li>
          ))}
        </ul>
      )}
    </article>
  );
}

/** What it costs, where, and how sure it is. */
function Facts({ finding }: { finding: FindingEntry }) {
  const facts = [
    finding.headroom_ns !== null && `up to ${formatDuration(finding.headroom_ns)} per iteration`,
    finding.share_ratio !== null && `${formatRatio(finding.share_ratio)} of the time`,
    finding.rank !== null && `rank ${finding.rank}`,
    finding.iterations !== null && `iterations ${finding.iterations[0]} to ${finding.iterations[1]}`,
    showName(finding.place, 200),
    `confidence ${finding.confidence.toFixed(2)}`,
  ].filter((fact) => fact !== false && fact !== "");
  return (
    <p class="facts">
      {facts.join(" · ")} {finding.source && <ShortSource place={finding.source} />}
    </p>
  );
}

export const findings: View<FindingsDocument> = { name: "findings", component: Findings };
