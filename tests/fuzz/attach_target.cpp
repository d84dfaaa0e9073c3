// Frames between a client and its node.
#include <array>
#include <span>
#include <string_view>

#include "core/instance_spec.hpp"
#include "core/trace_context.hpp"
#include "tests/fuzz/target.hpp"
#include "transport/local/attach.hpp"
#include "transport/local/socket.hpp"
#include "transport/local/trace_spans.hpp"

namespace {

using namespace cenote;
using namespace cenote::local;
using fuzz::bytes_view;

/// With the first byte as the minor version.
template <auto Decode>
void decode_minor(bytes_view input) {
  if (input.empty()) return;
  const auto minor = static_cast<std::uint16_t>(input[0]);
  const auto first = Decode(input.subspan(1), minor);
  if (first && !Decode(encode(*first, minor), minor)) std::abort();
}

constexpr std::array<fuzz::codec, 8> codecs{
    decode_minor<decode_attach>,
    decode_minor<decode_reattach>,
    fuzz::decode<decode_attach_reply>,
    fuzz::decode<decode_slab_query>,
    fuzz::decode<decode_slabs>,
    [](bytes_view input) { static_cast<void>(decode_failure(input)); },
    fuzz::decode<decode_spans>,
    [](bytes_view input) {
      const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
      if (const auto found = parse_traceparent(text); found && !is_valid(*found)) std::abort();
    }};

fuzz::bytes of_minor(std::uint16_t minor, const std::vector<std::byte>& payload) {
  fuzz::bytes made{static_cast<std::byte>(minor)};
  made.insert(made.end(), payload.begin(), payload.end());
  return made;
}

void write_seeds() {
  attach_request request{.spec = {}, .max_pins = 64, .token = "token", .client_name = "client"};
  request.spec.id = "instance";
  request.spec.tokens_per_block = 16;
  request.spec.groups.push_back({.name = "default", .parts = {{"kv", 4096}}});
  const reattach_request again{.session = 1, .secret = 2, .listed_in = 3, .held = {{.block = 1, .grant_version = 2}}};
  for (const std::uint16_t minor : {0, 1, 3, 8, 20}) {
    fuzz::write_seed(0, of_minor(minor, encode(request, minor)));
    fuzz::write_seed(1, of_minor(minor, encode(again, minor)));
  }
  fuzz::write_seed(2, encode(attach_reply{.session = 1, .secret = 2, .worker_epoch = 3, .pin_slots = 4}));
  fuzz::write_seed(3, encode_slab_query({1, 2, 3}));
  fuzz::write_seed(4, encode_slabs({{.index = 1, .bytes = 4096}}));
  fuzz::write_seed(5, encode_failure({error_code::no_space, "full"}));
  const std::string_view context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  trace_span span{.parent = parse_traceparent(context).value_or(trace_context())};
  span.blocks = 7;
  fuzz::write_seed(6, encode(span_batch{.spans = {span, span}}));
  fuzz::write_seed(7, {std::as_bytes(std::span(context)).begin(), std::as_bytes(std::span(context)).end()});
}

}  // namespace

cenote::fuzz::target cenote::fuzz::make_target() {
  return {.codecs = ::codecs, .write_seeds = ::write_seeds};
}
