// Fills reserved blocks where they lie and reads pinned blocks where they lie: nothing is copied. C++17.
//
// cenote node must be running; CENOTE_SOCKET says where, if not in the default place. Ends with 0 when all was right.
#include <cenote.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::size_t block_count = 8;
constexpr std::size_t key_bytes = 32;
constexpr std::uint64_t part_bytes = 64 * 1024;  // keys and values are a part each

/// What a call of the C ABI failed with.
class failure : public std::runtime_error {
 public:
  explicit failure(int code)
      : std::runtime_error(std::string(cenote_error_name(code)) + ": " + cenote_last_error()), code_(code) {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

void check(int code) {
  if (code != CENOTE_OK) throw failure(code);
}

struct session_end {
  void operator()(cenote_session* session) const noexcept { cenote_free(session); }  // closes, too
};
using session_ptr = std::unique_ptr<cenote_session, session_end>;

session_ptr attach() {
  const std::array<cenote_part, 2> parts{{{"k", part_bytes}, {"v", part_bytes}}};
  const std::array<cenote_group, 1> groups{{{"full", parts.data(), parts.size()}}};
  cenote_spec spec{};
  spec.struct_size = sizeof spec;
  spec.tokens_per_block = 16;
  spec.id = "example-cpp";
  spec.groups = groups.data();
  spec.group_count = groups.size();
  cenote_options options{};
  options.struct_size = sizeof options;
  options.client_name = "example";
  cenote_session* session = nullptr;
  check(cenote_attach(&spec, &options, &session));
  return session_ptr(session);
}

/// Blocks pinned for reading: they stay where they are until this ends.
class pinned {
 public:
  pinned(cenote_session* session, cenote_keys keys, std::uint32_t group) : session_(session), blocks_(keys.count) {
    std::size_t count = 0;
    check(cenote_acquire(session, keys, group, blocks_.data(), &count));
    blocks_.resize(count);  // the resident prefix; what is missing is no error
  }
  ~pinned() { cenote_release_held(session_, blocks_.data(), blocks_.size()); }
  pinned(const pinned&) = delete;
  pinned& operator=(const pinned&) = delete;

  [[nodiscard]] const std::vector<cenote_held>& blocks() const noexcept { return blocks_; }

 private:
  cenote_session* session_;
  std::vector<cenote_held> blocks_;
};

/// An engine has keys already: digests that stand for a block's tokens and everything before them. These stand in.
std::vector<unsigned char> make_keys() {
  std::vector<unsigned char> keys(block_count * key_bytes);
  std::uint64_t state = 7;
  for (unsigned char& byte : keys) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<unsigned char>(state >> 56);
  }
  return keys;
}

/// The number of blocks that became visible. Those that are there already, or that somebody else writes, are skipped.
std::uint64_t write(cenote_session* session, cenote_keys keys, std::uint32_t group) {
  std::vector<cenote_reserved> reserved(keys.count);
  check(cenote_reserve(session, keys, group, CENOTE_WHOLE_BLOCK, reserved.data()));
  for (std::size_t i = 0; i < reserved.size(); ++i) {
    if (reserved[i].state != CENOTE_WRITABLE) continue;
    auto* begin = static_cast<unsigned char*>(reserved[i].data);  // parts lie in declared order: k, then v
    std::fill_n(begin, part_bytes, static_cast<unsigned char>(i));
    std::fill_n(begin + part_bytes, part_bytes, static_cast<unsigned char>(128 + i));
  }
  std::uint64_t completed = 0;
  check(cenote_commit(session, reserved.data(), reserved.size(), &completed));
  return completed;
}

bool read(cenote_session* session, cenote_keys keys, std::uint32_t group) {
  const pinned held(session, keys, group);
  std::printf("acquire: %zu blocks pinned\n", held.blocks().size());
  bool same = held.blocks().size() == keys.count;
  for (std::size_t i = 0; i < held.blocks().size(); ++i) {
    const auto* begin = static_cast<const unsigned char*>(held.blocks()[i].data);
    same = same && begin[0] == i && begin[part_bytes] == 128 + i && held.blocks()[i].bytes == 2 * part_bytes;
  }
  return same;
}

/// Whether a mistake is answered with the code that the header promises.
bool refuses_mistakes(cenote_session* session) {
  std::uint32_t number = 0;
  const int code = cenote_group_index(session, "no such group", &number);
  std::printf("a group that is not in the spec: %s\n", failure(code).what());
  return code == CENOTE_INVALID_ARGUMENT;
}

}  // namespace

int main() try {
  const session_ptr session = attach();
  const std::vector<unsigned char> key_data = make_keys();
  const cenote_keys keys{key_data.data(), block_count, key_bytes};
  std::uint32_t group = 0;
  check(cenote_group_index(session.get(), "full", &group));

  std::printf("commit: %d blocks became visible\n", static_cast<int>(write(session.get(), keys, group)));
  const bool good = read(session.get(), keys, group) && refuses_mistakes(session.get());
  std::puts(good ? "all as it should be" : "something was wrong");
  return good ? 0 : 1;
} catch (const failure& why) {
  std::fprintf(stderr, "%s\n", why.what());
  if (why.code() == CENOTE_NOT_RUNNING) std::fputs("start one: cenote node\n", stderr);
  return 1;
} catch (const std::exception& why) {
  std::fprintf(stderr, "%s\n", why.what());
  return 1;
}
