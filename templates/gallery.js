/* Filters and order of the failures only: without it every failure is simply shown. */
(function () {
  var list = document.getElementById("gal"), tools = document.getElementById("tools");
  if (!list || !tools) return;
  var items = [].slice.call(list.children), chosen = { model: "", arm: "" }, by = "order";
  function compare(a, b) {
    var x = a.dataset[by], y = b.dataset[by];
    if (by === "name") return x.localeCompare(y);
    return by === "confidence" ? y - x : x - y;
  }
  function draw() {
    var shown = 0;
    items.sort(compare).forEach(function (item) {
      item.hidden = Object.keys(chosen).some(function (field) { return chosen[field] && item.dataset[field] !== chosen[field]; });
      if (!item.hidden) shown += 1;
      list.appendChild(item);
    });
    document.getElementById("count").textContent = shown + " of " + items.length + " shown";
  }
  tools.addEventListener("click", function (event) {
    var button = event.target.closest("button");
    if (!button) return;
    chosen[button.dataset.field] = button.dataset.value;
    [].forEach.call(button.parentNode.children, function (other) { other.setAttribute("aria-pressed", String(other === button)); });
    draw();
  });
  document.getElementById("sort").addEventListener("change", function (event) { by = event.target.value; draw(); });
  tools.hidden = false;
  draw();
})();
