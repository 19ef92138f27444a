"use strict";
for (const time of document.querySelectorAll("time[datetime]")) {
  const local = new Date(time.dateTime);
  time.textContent = local.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}
for (const button of document.querySelectorAll("button[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  if (!source || !navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(source.value ?? source.textContent.trim());
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
