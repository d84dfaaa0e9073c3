// Requests of HTTP as services read them, and the bodies of the indexer's calls.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "services/indexer/http/body_reader.hpp"
#include "tests/fuzz/target.hpp"
#include "transport/http/request_stream.hpp"

namespace {

using namespace cenote::indexer;
using namespace cenote::http;
using cenote::fuzz::bytes;
using cenote::fuzz::bytes_view;

/// The input with the padding that the server promises.
bytes padded(bytes_view input) {
  bytes memory(input.begin(), input.end());
  memory.resize(input.size() + http_request::body_padding, std::byte{'"'});
  return memory;
}

/// All views of a question, which the address sanitizer watches, and its bounds.
void use(const question_body& body) {
  std::size_t sum = body.question.model.size() + body.question.lora_name.size();
  for (const auto each : body.question.tokens) sum += each;
  for (const auto each : body.question.block_keys) sum += each;
  for (const auto each : body.question.pods) {
    if (each.empty() || each.size() > body_reader::longest_name) std::abort();
    sum += static_cast<unsigned char>(each.back());
  }
  if (body.prompt && !body.prompt->empty()) sum += static_cast<unsigned char>(body.prompt->back());
  const auto& lists = body.question.extra_keys;
  for (std::size_t block = 0; block < lists.blocks.size(); ++block) {
    const auto list = lists.list(block);
    if (item_size(list) != list.size()) std::abort();  // each one is whole
  }
  static volatile std::size_t result;
  result = sum;
}

body_reader& shared_reader() {
  static body_reader reader;
  return reader;
}

void read_question(bytes_view input) {
  const bytes memory = padded(input);
  if (const auto read = shared_reader().read_question(bytes_view(memory).first(input.size()))) use(*read);
}

/// A query, a zero byte, a body.
void read_binary_question(bytes_view input) {
  const auto zero = std::ranges::find(input, std::byte{0});
  const auto query = input.first(static_cast<std::size_t>(zero - input.begin()));
  const auto rest = input.subspan(std::min(query.size() + 1, input.size()));
  const std::string_view text(reinterpret_cast<const char*>(query.data()), query.size());
  const bytes memory = padded(rest);
  if (const auto read = shared_reader().read_binary_question(bytes_view(memory).first(rest.size()), text)) use(*read);
}

void read_settings(bytes_view input) {
  const bytes memory = padded(input);
  const auto body = bytes_view(memory).first(input.size());
  static_cast<void>(shared_reader().read_publisher(body));
  static_cast<void>(shared_reader().read_clear(body));
}

/// The requests in `input`, which comes in pieces of this size.
std::string requests_of(bytes_view input, std::size_t piece) {
  static buffer_budget budget(std::size_t{64} << 20U);
  request_stream stream({.header = 1024, .body = 4096, .fields = 20}, budget);
  std::string seen;
  while (!input.empty()) {
    const auto room = stream.room();
    const std::size_t size = std::min({piece, room.size(), input.size()});
    std::memcpy(room.data(), input.data(), size);
    stream.add(size);
    input = input.subspan(size);
    while (true) {
      const stream_state state = stream.advance();
      if (state == stream_state::incomplete) break;
      if (state == stream_state::refused) return seen + "refused";
      if (state == stream_state::header) continue;
      const http_request& request = stream.request();
      if (request.body.size() > 4096) std::abort();
      seen.append(request.method).append(" ").append(request.path).append("?").append(request.query).append(" ");
      seen.append(reinterpret_cast<const char*>(request.body.data()), request.body.size());
      seen.append(stream.keeps_alive() ? ";" : "!");
      stream.finish();
    }
  }
  return seen;
}

/// A stream has the same requests in whatever pieces it comes: a second reader cannot be led to see others. A bound may
/// be met earlier or later.
void read_requests(bytes_view input) {
  if (input.empty()) return;
  constexpr std::string_view refusal = "refused";
  std::string whole = requests_of(input, input.size());
  std::string bytewise = requests_of(input, 1);
  const bool is_equal = whole == bytewise;
  bool is_refused = false;
  for (std::string* each : {&whole, &bytewise}) {
    if (!each->ends_with(refusal)) continue;
    each->resize(each->size() - refusal.size());
    is_refused = true;
  }
  if (!is_equal && !(is_refused && (whole.starts_with(bytewise) || bytewise.starts_with(whole)))) std::abort();
}

constexpr std::array<cenote::fuzz::codec, 4> codecs{read_question, read_binary_question, read_settings, read_requests};

void write_text_seed(std::size_t codec, std::string_view text) {
  cenote::fuzz::write_seed(codec, std::as_bytes(std::span(text)));
}

void write_seeds() {
  write_text_seed(0, R"({"model_name":"Qwen\/Qwen3","token_ids":[1,2,4294967295],"pod_identifiers":["a","b"],)"
                     R"("lora_name":"l","cache_salt":"s","extra_keys":[null,["x",[1,-2,1.5,{"k":true,"j":null}]]],)"
                     R"("ttl_s":1.5,"unknown":{"a":[{}]}})");
  write_text_seed(
      0, R"({"block_keys":[1,"18446744073709551615"],"prompt":"\ud83d\ude00\n","extra_keys":[[{"bytes":"0f"}]]})");
  using namespace std::string_view_literals;
  write_text_seed(1, "model_name=Qwen%2FQwen3&pod_identifiers=a&extra_keys=%5Bnull,[1]%5D&cache_salt=s+s\0abcdefgh"sv);
  write_text_seed(2,
                  R"({"name":"a","endpoint":"tcp://h:1","replay":"tcp://h:2","pod":"p","model":"m","medium":"gpu"})");
  write_text_seed(3, "GET /a?b HTTP/1.1\r\nHost: h\r\n\r\nPOST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
  write_text_seed(3,
                  "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\n"
                  "HEAD http://h/ HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n\r\n");
}

}  // namespace

cenote::fuzz::target cenote::fuzz::make_target() {
  return {.codecs = ::codecs, .write_seeds = ::write_seeds};
}
