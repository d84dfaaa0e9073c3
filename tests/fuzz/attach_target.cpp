// Frames between a client and its node.
#include <array>

#include "core/instance_spec.hpp"
#include "tests/fuzz/target.hpp"
#include "transport/local/attach.hpp"
#include "transport/local/socket.hpp"

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

constexpr std::array<fuzz::codec, 6> codecs{
    decode_minor<decode_attach>,       decode_minor<decode_reattach>,
    fuzz::decode<decode_attach_reply>, fuzz::decode<decode_slab_query>,
    fuzz::decode<decode_slabs>,        [](bytes_view input) { static_cast<void>(decode_failure(input)); }};

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
}

}  // namespace

cenote::fuzz::target cenote::fuzz::make_target() {
  return {.codecs = ::codecs, .write_seeds = ::write_seeds};
}
