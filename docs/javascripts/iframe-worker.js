// The search where the site is opened from a folder: browsers start no worker from a file, so a frame that is not seen
// does its work.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.document.open();
      inside.document.close();
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = new URL(address, location.href);
      this.ready = new Promise((resolve) => script.addEventListener("load", resolve)).then(() => inside);
      inside.document.body.append(script);
    }

    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}

// A query that begins with a hyphen leaves out what has the word. Flags begin with two, and are what is looked for.
window.Worker = class extends window.Worker {
  postMessage(message) {
    const flags = (text) => text.replace(/(^|\s)--+(?=\w)/g, "$1");
    super.postMessage(typeof message.data === "string" ? { ...message, data: flags(message.data) } : message);
  }
};
