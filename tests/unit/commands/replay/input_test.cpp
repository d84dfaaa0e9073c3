#include "commands/replay/input.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <string>

namespace cenote::input_test {

namespace {

/// The text or the error of a file with these bytes.
std::string unpacked(const std::string& bytes) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("cenote-input-{}", ::getpid());
  std::ofstream(path, std::ios::binary) << bytes;
  const auto text = read_packed_file(path.string());
  std::filesystem::remove(path);
  return text ? *text : text.error().message();
}

/// A frame of Zstandard with one block that is not packed.
std::string zstd_frame(const std::string& text) {
  const auto size = static_cast<unsigned>(text.size());
  std::string frame("\x28\xb5\x2f\xfd\x20", 5);
  frame += static_cast<char>(size);
  for (const unsigned shift : {0U, 8U, 16U}) frame += static_cast<char>(((size << 3U) | 1U) >> shift);
  return frame + text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(packed_files)

BOOST_AUTO_TEST_CASE(frames_to_be_skipped_are_skipped_wherever_they_stand) {
  for (const char kind : {'\x50', '\x5f'}) {
    const std::string skipped = kind + std::string("\x2a\x4d\x18\x03\0\0\0abc", 10);
    BOOST_TEST(unpacked(skipped + zstd_frame("some text")) == "some text");
    BOOST_TEST(unpacked(zstd_frame("some ") + skipped + zstd_frame("text") + skipped) == "some text");
    BOOST_TEST(unpacked(skipped).empty());
    BOOST_TEST(unpacked(skipped.substr(0, 9)).find("is no whole zstd file") != std::string::npos);
  }
  BOOST_TEST(unpacked("\x60\x2a\x4d\x18") == "\x60\x2a\x4d\x18");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::input_test
