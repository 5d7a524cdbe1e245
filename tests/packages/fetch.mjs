// Asks for each URL with Node's own fetch.
for (const url of process.argv.slice(2)) {
  const answer = await fetch(url).catch((error) => ({ status: error.message, text() {} }));
  await answer.text();
  console.log(answer.status, url);
}
